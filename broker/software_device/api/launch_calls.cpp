// SPDX-License-Identifier: Apache-2.0
// cuLaunchKernel and its relatives.
#include <algorithm>

#include "api/entry.hpp"
#include "api/launch.hpp"

using namespace ctxbroker::software;

namespace {

CUresult launch_kernel(const LaunchRequest& request) {
  return working([&] { launch(request); });
}

// Refuses launch attributes that the software device cannot honour.
void check_attribute(const CUlaunchAttribute& attribute) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:  // a wish, to a scheduler that runs one kernel at a time
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:  // allows overlap, never needs it
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:                        // see is_cooperative
      return;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: {
      const auto& size = attribute.value.clusterDim;
      check_that(size.x == 1 && size.y == 1 && size.z == 1, CUDA_ERROR_NOT_SUPPORTED);
      return;
    }
    default:
      fail(attribute.id > CU_LAUNCH_ATTRIBUTE_IGNORE && attribute.id < CU_LAUNCH_ATTRIBUTE_MAX
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_ERROR_INVALID_VALUE);
  }
}

bool is_cooperative(const CUlaunchConfig& config) {
  return std::any_of(config.attrs, config.attrs + config.numAttrs, [](const auto& attribute) {
    return attribute.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && attribute.value.cooperative != 0;
  });
}

CUresult launch_config(const CUlaunchConfig* config, bool own_stream, CUfunction function,
                       void** parameters, void** extra) {
  return working([&] {
    check_value(config != nullptr && (config->numAttrs == 0 || config->attrs != nullptr));
    for (unsigned i = 0; i < config->numAttrs; ++i) check_attribute(config->attrs[i]);
    launch({.function = function,
            .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
            .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
            .dynamic_shared = config->sharedMemBytes,
            .stream = own_stream ? per_thread(config->hStream) : config->hStream,
            .parameters = parameters,
            .extra = extra,
            .cooperative = is_cooperative(*config)});
  });
}

}  // namespace

CTXB_EXPORT_PTSZ(cuLaunchKernel,
                 (CUfunction function, unsigned int grid_x, unsigned int grid_y,
                  unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                  unsigned int block_z, unsigned int dynamic_shared, CUstream stream,
                  void** parameters, void** extra),
                 launch_kernel({function,
                                {grid_x, grid_y, grid_z},
                                {block_x, block_y, block_z},
                                dynamic_shared,
                                stream,
                                parameters,
                                extra}))

CTXB_EXPORT_PTSZ(cuLaunchCooperativeKernel,
                 (CUfunction function, unsigned int grid_x, unsigned int grid_y,
                  unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                  unsigned int block_z, unsigned int dynamic_shared, CUstream stream,
                  void** parameters),
                 launch_kernel({function,
                                {grid_x, grid_y, grid_z},
                                {block_x, block_y, block_z},
                                dynamic_shared,
                                stream,
                                parameters,
                                nullptr,
                                true}))

CTXB_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                      void** parameters, void** extra) {
  CTXB_COUNT_CALL();
  return launch_config(config, false, function, parameters, extra);
}

CTXB_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function,
                                           void** parameters, void** extra) {
  CTXB_COUNT_CALL();
  return launch_config(config, true, function, parameters, extra);
}
