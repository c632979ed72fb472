// SPDX-License-Identifier: Apache-2.0
#include "api/multiprocessors.hpp"

#include <algorithm>
#include <cstring>

#include "api/status.hpp"

namespace ctxbroker::software {
namespace {

constexpr unsigned cluster = 8, pair = 2;

constexpr std::uint64_t mark = 0x63747862'736d7273;  // of structures that to_public wrote

struct Hidden {
  std::uint64_t mark = 0;
  std::uint64_t split = 0;
  std::int64_t device = 0;
  MultiprocessorSet members;
};
static_assert(sizeof(Hidden) <= sizeof(CUdevResource::_internal_padding));

}  // namespace

MultiprocessorSet first_multiprocessors(unsigned count) noexcept {
  return MultiprocessorSet().set() >> (most_multiprocessors - count);
}

CUdevResource to_public(const MultiprocessorResource& resource) noexcept {
  CUdevResource out = {};
  if (resource.members.none()) return out;
  out.type = CU_DEV_RESOURCE_TYPE_SM;
  out.sm.smCount = static_cast<unsigned>(resource.members.count());
#if CUDA_VERSION >= 13000
  if (resource.split == 0) {  // NVIDIA's driver leaves both 0 in the results of a split
    out.sm.minSmPartitionSize = cluster;
    out.sm.smCoscheduledAlignment = cluster;
  }
#endif
  Hidden hidden{mark, resource.split, resource.device, resource.members};
  std::memcpy(out._internal_padding, &hidden, sizeof hidden);
  return out;
}

MultiprocessorResource from_public(const CUdevResource& resource) {
  check_that(resource.type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
  Hidden hidden;
  std::memcpy(&hidden, resource._internal_padding, sizeof hidden);
  check_that(hidden.mark == mark && hidden.members.count() == resource.sm.smCount,
             CUDA_ERROR_INVALID_RESOURCE_TYPE);
  return {hidden.members, static_cast<int>(hidden.device), hidden.split};
}

SplitPlan plan_split(const MultiprocessorSet& members, unsigned least, bool fine) {
  auto count = static_cast<unsigned>(members.count());
  check_that(least <= count, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  unsigned unit = fine ? pair : cluster;
  unsigned size = std::max(1u, (least + unit - 1) / unit) * unit;
  if (size > count) return {1, count};  // all of them, though no multiple of the unit
  unsigned groups = count / size;
  // An H200 makes no sixteenth group of eight, though its 132 would suffice: what is left over
  // after fifteen lies in more than one cluster.
  if (!fine && size == cluster && groups > 1 && count % cluster != 0) --groups;
  return {groups, size};
}

}  // namespace ctxbroker::software
