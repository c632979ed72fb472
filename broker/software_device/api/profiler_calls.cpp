// SPDX-License-Identifier: Apache-2.0
// cuProfiler*. No profiler ever watches the software device: there is nothing to switch on or off.
// Their header, cudaProfiler.h, is not among the files that NVIDIA publishes with its compiler.
#include "api/context.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

CTXB_EXPORT CUresult cuProfilerInitialize(const char*, const char*, int) {
  CTXB_COUNT_CALL();
  return initialised([] { return CUDA_ERROR_NOT_SUPPORTED; });  // as since CUDA 11
}

CTXB_EXPORT CUresult cuProfilerStart() {
  CTXB_COUNT_CALL();
  return initialised([] { working_context(); });
}

CTXB_EXPORT CUresult cuProfilerStop() {
  CTXB_COUNT_CALL();
  return initialised([] { working_context(); });
}
