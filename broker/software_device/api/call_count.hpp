// SPDX-License-Identifier: Apache-2.0
// What a test may do to the driver's calls: count them and make them fail. See
// ctxbroker/software_device.h.
#pragma once

#include <atomic>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

namespace detail {
enum class Counting : int { unknown, off, on };  // unknown: the environment was not read yet
// Read by every call of the driver, so it can be in no object of one.
extern std::atomic<Counting> counting;
CUresult count_call_slowly(const char* name) noexcept;
}  // namespace detail

// Counts a call; the status with which it must return at once, or success.
inline CUresult count_call(const char* name) noexcept {
  if (detail::counting.load(std::memory_order_relaxed) == detail::Counting::off) [[likely]]
    return CUDA_SUCCESS;
  return detail::count_call_slowly(name);
}

// CUDA_ERROR_INVALID_VALUE when CTXBROKER_SOFTWARE_FAIL is no list of failures; says so on stderr.
CUresult check_failures_of_environment() noexcept;

}  // namespace ctxbroker::software

// The first statement of every exported function.
#define CTXB_COUNT_CALL()                                                 \
  if (CUresult ctxb_status = ::ctxbroker::software::count_call(__func__); \
      ctxb_status != CUDA_SUCCESS)                                        \
  return ctxb_status
