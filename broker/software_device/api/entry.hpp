// SPDX-License-Identifier: Apache-2.0
// The frame of every exported function: it answers only while the driver is in a state to, no C++
// exception leaves it, and where it works in a stream, it exists once more for the default stream
// of each thread.
#pragma once

#include <exception>
#include <new>
#include <type_traits>

#include "api/call_count.hpp"
#include "api/process.hpp"
#include "api/status.hpp"
#include "api/stream.hpp"

#define CTXB_EXPORT extern "C" __attribute__((visibility("default")))

// NOLINTBEGIN(bugprone-macro-parentheses): a parameter list and a whole expression take none

// Exports a function that takes a stream, and its twin `name`_ptsz, for which the null stream is
// the calling thread's own. `parameters` stand in parentheses, with a `CUstream stream` among them.
// Both return `call`, an expression.
//
//   CTXB_EXPORT_PTSZ(cuStreamGetFlags, (CUstream stream, unsigned int* flags),
//                    get_flags(stream, flags))
#define CTXB_EXPORT_PTSZ(name, parameters, call)        \
  CTXB_EXPORT CUresult name parameters {                \
    CTXB_COUNT_CALL();                                  \
    return call;                                        \
  }                                                     \
  CTXB_EXPORT CUresult name##_ptsz parameters {         \
    CTXB_COUNT_CALL();                                  \
    stream = ::ctxbroker::software::per_thread(stream); \
    return call;                                        \
  }

// Exports a function that works in the default stream, and its twin `name`_ptds. `call` names that
// `stream`: it is the legacy stream, or in the twin the calling thread's own.
//
//   CTXB_EXPORT_PTDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* request),
//                    copy_2d(stream, request, Waiting::done))
#define CTXB_EXPORT_PTDS(name, parameters, call)  \
  CTXB_EXPORT CUresult name parameters {          \
    CTXB_COUNT_CALL();                            \
    const CUstream stream = CU_STREAM_LEGACY;     \
    return call;                                  \
  }                                               \
  CTXB_EXPORT CUresult name##_ptds parameters {   \
    CTXB_COUNT_CALL();                            \
    const CUstream stream = CU_STREAM_PER_THREAD; \
    return call;                                  \
  }

// NOLINTEND(bugprone-macro-parentheses)

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
