// SPDX-License-Identifier: Apache-2.0
// The device's multiprocessors, which green contexts divide among themselves. The rules are an
// H200's, so that what is planned here fits there. They divide nothing in truth: kernels run on
// every thread of the device, whatever their context.
#pragma once

#include <bitset>
#include <cstdint>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

inline constexpr unsigned most_multiprocessors = 256;

using MultiprocessorSet = std::bitset<most_multiprocessors>;

// The first `count` of them.
MultiprocessorSet first_multiprocessors(unsigned count) noexcept;

// What a CUdevResource says.
struct MultiprocessorResource {
  MultiprocessorSet members;
  int device = 0;
  std::uint64_t split = 0;  // which split made it; 0: none, so it may be split itself
};

// `resource` as the application sees it, which keeps it in a structure of its own. An empty one
// becomes CU_DEV_RESOURCE_TYPE_INVALID.
CUdevResource to_public(const MultiprocessorResource& resource) noexcept;
// CUDA_ERROR_INVALID_RESOURCE_TYPE for anything that to_public did not write.
MultiprocessorResource from_public(const CUdevResource& resource);

// How many groups, of how many multiprocessors each.
struct SplitPlan {
  unsigned groups = 0, size = 0;
};

// The largest number of equal groups with at least `least` members each. `fine`: pairs instead of
// clusters of eight. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION when there are not so many.
SplitPlan plan_split(const MultiprocessorSet& members, unsigned least, bool fine);

}  // namespace ctxbroker::software
