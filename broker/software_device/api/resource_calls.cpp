// SPDX-License-Identifier: Apache-2.0
// cuDevResource* and cuDevSmResource*: parts of a device for green contexts.
#include <algorithm>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/green.hpp"
#include "api/multiprocessors.hpp"

using namespace ctxbroker::software;

namespace {

void write_resource(CUdevResource* out, const MultiprocessorSet& members, const Device& device,
                    CUdevResourceType type) {
  check_value(out != nullptr);
  check_that(type == CU_DEV_RESOURCE_TYPE_SM, CUDA_ERROR_INVALID_RESOURCE_TYPE);
  *out = to_public({members, device.ordinal, 0});
}

// Takes the lowest `size` members out of `from`.
MultiprocessorSet take(MultiprocessorSet& from, unsigned size) {
  MultiprocessorSet taken;
  for (std::size_t i = 0; i < from.size() && taken.count() < size; ++i)
    if (from[i]) taken.set(i);
  from &= ~taken;
  return taken;
}

}  // namespace

CTXB_EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource,
                                            CUdevResourceType type) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    const Device& found = find_device(device);
    write_resource(resource, first_multiprocessors(found.settings.multiprocessors), found, type);
  });
}

CTXB_EXPORT CUresult cuCtxGetDevResource(CUcontext context, CUdevResource* resource,
                                         CUdevResourceType type) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_that(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);  // not the current one
    const Context& found = living_context(context);
    write_resource(resource, found.multiprocessors, found.device, type);
  });
}

CTXB_EXPORT CUresult cuGreenCtxGetDevResource(CUgreenCtx green, CUdevResource* resource,
                                              CUdevResourceType type) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    const Context& found = living_green(green);
    write_resource(resource, found.multiprocessors, found.device, type);
  });
}

CTXB_EXPORT CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned int* groups,
                                                 const CUdevResource* input,
                                                 CUdevResource* remaining, unsigned int flags,
                                                 unsigned int least) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    constexpr unsigned fine = CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING;
    constexpr unsigned clusters = CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE;
    check_value(groups != nullptr && input != nullptr);
    check_value(flags == 0 || flags == fine || flags == clusters);
    MultiprocessorResource from = from_public(*input);
    check_that(from.split == 0, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    SplitPlan plan = plan_split(from.members, least, flags == fine);
    if (result != nullptr) {
      check_value(*groups != 0);
      plan.groups = std::min(plan.groups, *groups);
    }
    MultiprocessorResource part{{}, from.device, next_id()};
    for (unsigned i = 0; i < plan.groups; ++i) {
      part.members = take(from.members, plan.size);
      if (result != nullptr) result[i] = to_public(part);
    }
    part.members = from.members;
    if (remaining != nullptr) *remaining = to_public(part);
    *groups = plan.groups;
  });
}

// As NVIDIA documents it. Driver 580 does not look whether the parts are of one split, and crashes
// on some that are not.
CTXB_EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* descriptor,
                                               CUdevResource* resources, unsigned int count) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(descriptor != nullptr && resources != nullptr && count != 0);
    MultiprocessorResource all = from_public(resources[0]);
    for (unsigned i = 1; i < count; ++i) {
      MultiprocessorResource part = from_public(resources[i]);
      check_that(part.device == all.device && part.split == all.split && part.split != 0,
                 CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
      all.members |= part.members;
    }
    *descriptor = Process::instance().descriptors.add(all);
  });
}
