// SPDX-License-Identifier: Apache-2.0
// The driver's error log: what a status code cannot say. Readers register with
// cuLogsRegisterCallback, or set CUDA_LOG_FILE to stdout, stderr or a path, as with NVIDIA's
// driver.
#pragma once

#include <string>

namespace ctxbroker::software {

// One sentence, without a line end. Any thread; never throws.
void log_error(const std::string& text) noexcept;

// Tells that the software device has no such thing, and fails with CUDA_ERROR_NOT_SUPPORTED.
[[noreturn]] void refuse(const std::string& what);

}  // namespace ctxbroker::software
