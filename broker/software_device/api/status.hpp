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

inline void check_that(bool condition, CUresult otherwise) {
  if (!condition) fail(otherwise);
}

inline void check_value(bool condition) {
  check_that(condition, CUDA_ERROR_INVALID_VALUE);
}

}  // namespace ctxbroker::software
