// SPDX-License-Identifier: Apache-2.0
// The words for the fault that ended CUDA in this process.
#pragma once

#include <string>

namespace ctxbroker::software {

// Logs the text, and keeps that of the first fault. `owner` stays for ever; null: unknown. Any
// thread; never throws.
void remember_fault(const std::string& text, const char* owner) noexcept;
// For another life of the driver.
void forget_fault() noexcept;

}  // namespace ctxbroker::software
