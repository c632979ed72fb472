// SPDX-License-Identifier: Apache-2.0
// What every exported function starts with: is the driver in a state to answer, and no C++
// exception leaves it.
#pragma once

#include <exception>
#include <new>
#include <type_traits>

#include "api/call_count.hpp"
#include "api/process.hpp"
#include "api/status.hpp"

#define CTXB_EXPORT extern "C" __attribute__((visibility("default")))

namespace ctxbroker::software {

// Runs `body` (returning CUresult or nothing) and maps what it throws.
template <class Body>
CUresult at_any_time(Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return CUDA_SUCCESS;
    } else {
      return body();
    }
  } catch (const Failure& failure) {
    return failure.status;
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

// For calls that need cuInit but go on answering after a fault: devices, the context stack.
template <class Body>
CUresult initialised(Body&& body) noexcept {
  if (CUresult status = Process::admission(); status != CUDA_SUCCESS) return status;
  return at_any_time(body);
}

// For calls on handles, which after a fault return the fault and nothing else.
template <class Body>
CUresult working(Body&& body) noexcept {
  if (CUresult status = Process::admission(); status != CUDA_SUCCESS) return status;
  if (CUresult status = Process::fault(); status != CUDA_SUCCESS) return status;
  return at_any_time(body);
}

}  // namespace ctxbroker::software
