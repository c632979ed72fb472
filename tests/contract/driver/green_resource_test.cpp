// SPDX-License-Identifier: Apache-2.0
// The multiprocessors of a device, split and joined for green contexts.
#include <vector>

#include "green_context.hpp"

#if CUDA_VERSION >= 12090
namespace ctxbroker::test {
namespace {

class GreenResource : public GreenTest {
 protected:
  struct Split {
    std::vector<CUdevResource> groups;
    CUdevResource rest = {};
  };
  Split split(unsigned groups, unsigned least, unsigned flags = 0) const {
    Split result;
    result.groups.resize(groups);
    CUdevResource all = whole();
    EXPECT_EQ(d.cuDevSmResourceSplitByCount(result.groups.data(), &groups, &all, &result.rest,
                                            flags, least),
              CUDA_SUCCESS);
    result.groups.resize(groups);
    return result;
  }
  unsigned groups_of(unsigned least, unsigned flags = 0) const {
    unsigned groups = 0;
    CUdevResource all = whole();
    EXPECT_EQ(d.cuDevSmResourceSplitByCount(nullptr, &groups, &all, nullptr, flags, least),
              CUDA_SUCCESS);
    return groups;
  }
  static unsigned size(const CUdevResource& resource) {
    return resource.type == CU_DEV_RESOURCE_TYPE_SM ? resource.sm.smCount : 0;
  }
};

TEST_F(GreenResource, ResourceOfADeviceHasAllItsMultiprocessors) {
  int count = 0;
  ASSERT_EQ(d.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
            CUDA_SUCCESS);
  EXPECT_EQ(size(whole()), unsigned(count));
  CUdevResource found = {};
  EXPECT_EQ(d.cuCtxGetDevResource(primary, &found, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
  EXPECT_EQ(size(found), unsigned(count));
  EXPECT_EQ(d.cuCtxGetDevResource(nullptr, &found, CU_DEV_RESOURCE_TYPE_SM),
            CUDA_ERROR_INVALID_CONTEXT)
      << "null is not the current one";
  EXPECT_EQ(d.cuDeviceGetDevResource(device, nullptr, CU_DEV_RESOURCE_TYPE_SM),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GreenResource, SplitsIntoEqualGroupsAndARest) {
  unsigned all = size(whole());
  for (unsigned least : {1u, 8u, 9u, 16u, 24u}) {
    unsigned groups = groups_of(least);
    ASSERT_GE(groups, 1u);
    Split made = split(groups, least);
    ASSERT_EQ(made.groups.size(), groups);
    unsigned sum = size(made.rest);
    for (const CUdevResource& group : made.groups) {
      EXPECT_GE(size(group), least);
      EXPECT_EQ(size(group), size(made.groups[0]));
      sum += size(group);
    }
    EXPECT_EQ(sum, all) << "in groups of at least " << least;
  }
}

TEST_F(GreenResource, FewerGroupsLeaveALargerRest) {
  Split made = split(2, 16);
  ASSERT_EQ(made.groups.size(), 2u);
  EXPECT_EQ(size(made.groups[0]) + size(made.groups[1]) + size(made.rest), size(whole()));
}

TEST_F(GreenResource, SplitWithoutCoschedulingIsFiner) {
  EXPECT_GT(groups_of(2, CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING), groups_of(2));
}

TEST_F(GreenResource, SplitByTheWholeDeviceIsOneGroupWithoutARest) {
  Split made = split(1, size(whole()));
  ASSERT_EQ(made.groups.size(), 1u);
  EXPECT_EQ(size(made.groups[0]), size(whole()));
  EXPECT_EQ(made.rest.type, CU_DEV_RESOURCE_TYPE_INVALID);
}

TEST_F(GreenResource, ImpossibleSplitsAreRefused) {
  CUdevResource all = whole(), group = {};
  unsigned one = 1, none = 0;
  EXPECT_EQ(d.cuDevSmResourceSplitByCount(&group, &one, &all, nullptr, 0, size(all) + 1),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  EXPECT_EQ(d.cuDevSmResourceSplitByCount(&group, &one, &all, nullptr, 3, 8),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuDevSmResourceSplitByCount(&group, &none, &all, nullptr, 0, 8),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GreenResource, GroupsOfOneSplitMakeOneContext) {
  Split made = split(2, 16);
  ASSERT_EQ(made.groups.size(), 2u);
  std::vector<CUdevResource> parts = {made.groups[0], made.groups[1]};
  CUgreenCtx both = create(parts.data(), 2);
  CUgreenCtx rest = create(&made.rest, 1);
  CUdevResource of_both = {}, of_rest = {};
  EXPECT_EQ(d.cuGreenCtxGetDevResource(both, &of_both, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxGetDevResource(context_of(rest), &of_rest, CU_DEV_RESOURCE_TYPE_SM),
            CUDA_SUCCESS);
  EXPECT_EQ(size(of_both), size(parts[0]) + size(parts[1]));
  EXPECT_EQ(size(of_rest), size(made.rest));
  unsigned groups = 2;
  EXPECT_EQ(d.cuDevSmResourceSplitByCount(parts.data(), &groups, &of_both, nullptr, 0, 16),
            CUDA_SUCCESS)
      << "a green context's resource may be split again";
  EXPECT_EQ(groups, 2u);
  EXPECT_EQ(d.cuGreenCtxDestroy(both), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGreenCtxDestroy(rest), CUDA_SUCCESS);
}

// On a GPU the driver does not look, and crashes for some: the documentation is the measure.
TEST_F(GreenResource, GroupsOfDifferentSplitsAreRefusedTogether) {
  if (!d.is_software) GTEST_SKIP() << "NVIDIA's driver 580 takes them or crashes";
  Split first = split(2, 16), second = split(2, 16);
  CUdevResourceDesc descriptor = nullptr;
  CUdevResource mixed[2] = {first.groups[0], second.groups[1]};
  EXPECT_EQ(d.cuDevResourceGenerateDesc(&descriptor, mixed, 2),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  CUdevResource overlapping[2] = {whole(), first.groups[0]};
  EXPECT_EQ(d.cuDevResourceGenerateDesc(&descriptor, overlapping, 2),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  unsigned one = 1;
  EXPECT_EQ(d.cuDevSmResourceSplitByCount(mixed, &one, first.groups.data(), nullptr, 0, 8),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION)
      << "a group is not split again before it is a context's";
  CUdevResource none = {};
  EXPECT_EQ(d.cuDevResourceGenerateDesc(&descriptor, &none, 1), CUDA_ERROR_INVALID_RESOURCE_TYPE);
  EXPECT_EQ(d.cuDevResourceGenerateDesc(&descriptor, mixed, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuDevResourceGenerateDesc(nullptr, mixed, 1), CUDA_ERROR_INVALID_VALUE);
  CUdevResource larger = first.groups[0];
  larger.sm.smCount += 8;
  EXPECT_EQ(d.cuDevResourceGenerateDesc(&descriptor, &larger, 1), CUDA_ERROR_INVALID_RESOURCE_TYPE);
  CUgreenCtx made = nullptr;
  EXPECT_EQ(d.cuGreenCtxCreate(&made, nullptr, device, CU_GREEN_CTX_DEFAULT_STREAM),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(d.cuDevResourceGenerateDesc(&descriptor, &first.groups[0], 1), CUDA_SUCCESS);
  EXPECT_EQ(d.cuGreenCtxCreate(&made, descriptor, device, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuGreenCtxCreate(&made, descriptor, 9, CU_GREEN_CTX_DEFAULT_STREAM),
            CUDA_ERROR_INVALID_DEVICE);
}

}  // namespace
}  // namespace ctxbroker::test
#endif
