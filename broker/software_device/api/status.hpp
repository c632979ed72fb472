// SPDX-License-Identifier: Apache-2.0
// How errors travel inside the driver: thrown as Failure, turned into a CUresult at the entry
// point.
#pragma once

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

struct Failure {
  CUresult status;
};

[[noreturn]] inline void fail(CUresult status) {
  throw Failure{status};
}

inline void require(bool condition, CUresult otherwise) {
  if (!condition) fail(otherwise);
}

inline void require_value(bool condition) {
  require(condition, CUDA_ERROR_INVALID_VALUE);
}

}  // namespace ctxbroker::software
