// A kernel launch, as the entry points hand it on.
#pragma once

#include "api/cuda_api.hpp"
#include "exec/execute.hpp"

namespace ctxbroker::software {

struct LaunchRequest {
  CUfunction function = nullptr;
  exec::Dim3 grid, block;
  unsigned dynamic_shared = 0;  // bytes
  CUstream stream = nullptr;
  void** parameters = nullptr;  // one address per parameter; null if there are none or `extra`
  void** extra = nullptr;       // CU_LAUNCH_PARAM_*
};

// Checks everything, copies the arguments and enqueues. Throws Failure.
void launch(const LaunchRequest& request);

}  // namespace ctxbroker::software
