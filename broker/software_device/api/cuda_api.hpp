// SPDX-License-Identifier: Apache-2.0
// cuda.h with every version of every function declared under its own name, so that the compiler
// checks each exported definition against NVIDIA's declaration.
#pragma once

// NVIDIA's switch for the driver's own sources.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT(bugprone-reserved-identifier)
#include <cuda.h>

#include <algorithm>

#include "api/entry_points.h"

namespace ctxbroker::software {
// The CUDA version that the device reports for its driver.
inline constexpr int cuda_version = std::min(CUDA_VERSION, CTXB_NEWEST_CUDA);
}  // namespace ctxbroker::software
