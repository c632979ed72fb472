// SPDX-License-Identifier: Apache-2.0
// Partitions of a device's multiprocessors: what is granted, what overlaps, who is beside whom.
#include <algorithm>
#include <set>

#include "facts.hpp"

namespace ctxbroker::test {
namespace {

class PartitionFacts : public FactsTest {
 protected:
  CUdevResource granted(const Green& green) const {
    CUdevResource found = {};
    EXPECT_EQ(d.cuGreenCtxGetDevResource(green.handle, &found, CU_DEV_RESOURCE_TYPE_SM),
              CUDA_SUCCESS);
    return found;
  }
  // The multiprocessors that kernels of this context ran on.
  std::set<int> seen_multiprocessors(CUcontext context) const {
    int count = 0;
    EXPECT_EQ(d.cuDeviceGetAttribute(&count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device),
              CUDA_SUCCESS);
    const std::size_t words = 512;
    EXPECT_LE(count, int(words));
    CUdeviceptr counters = memory(words * 4);
    void* arguments[] = {&counters};
    {
      Current entered(context);
      EXPECT_EQ(d.cuLaunchKernel(fact_function("record_multiprocessor"), 4000, 1, 1, 1024, 1, 1, 0,
                                 nullptr, arguments, nullptr),
                CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    }
    std::vector<unsigned> blocks(words);
    EXPECT_EQ(d.cuMemcpyDtoH_v2(blocks.data(), counters, words * 4), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemFree_v2(counters), CUDA_SUCCESS);
    std::set<int> seen;
    for (std::size_t i = 0; i < words; ++i)
      if (blocks[i] != 0) seen.insert(static_cast<int>(i));
    return seen;
  }
  static std::vector<int> common(const std::set<int>& a, const std::set<int>& b) {
    std::vector<int> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    return both;
  }
};

TEST_F(PartitionFacts, GrantedMultiprocessorsAreRoundedUpByTheDriver) {
  const unsigned least = split_device(device, 1).groups.at(0).sm.smCount;
  const unsigned asked = least + 1;
  const Split split = split_device(device, asked);
  ASSERT_FALSE(split.groups.empty());
  for (const CUdevResource& group : split.groups) {
    EXPECT_GT(group.sm.smCount, asked) << "one more than the least is no multiple of it";
    EXPECT_EQ(group.sm.smCount % least, 0u);
  }
  const Green made = green({split.groups[0]});
  EXPECT_EQ(granted(made).sm.smCount, split.groups[0].sm.smCount);
  CUdevResource of_context = {};
  EXPECT_EQ(d.cuCtxGetDevResource(made.context, &of_context, CU_DEV_RESOURCE_TYPE_SM),
            CUDA_SUCCESS);
  EXPECT_EQ(of_context.sm.smCount, split.groups[0].sm.smCount);
}

TEST_F(PartitionFacts, TheGroupsAndTheRestAreAllOfTheDevice) {
  const CUdevResource all = all_multiprocessors(device);
  const Split split = split_device(device, 1);
  ASSERT_GE(split.groups.size(), 2u);
  unsigned sum = split.rest.type == CU_DEV_RESOURCE_TYPE_SM ? split.rest.sm.smCount : 0;
  for (const CUdevResource& group : split.groups) {
    EXPECT_EQ(group.sm.smCount, split.groups[0].sm.smCount);
    sum += group.sm.smCount;
  }
  EXPECT_EQ(sum, all.sm.smCount);
}

// The documentation refuses it, and so does the software device. NVIDIA's driver 580 does not look,
// and has crashed on other mixtures: only who keeps to one split is safe.
TEST_F(PartitionFacts, GroupsOfTwoEqualSplitsAreNotRefused) {
  CTXB_REQUIRE_NVIDIA("the software device keeps to the documentation");
  Split first = split_device(device, 1), second = split_device(device, 1);
  CUdevResource mixed[] = {first.groups.at(0), second.groups.at(1)};
  CUdevResourceDesc description = nullptr;
  EXPECT_EQ(d.cuDevResourceGenerateDesc(&description, mixed, 2), CUDA_SUCCESS);
}

TEST_F(PartitionFacts, OneDescriptionMakesSeveralContexts) {
  Split split = split_device(device, 1);
  CUdevResourceDesc description = nullptr;
  ASSERT_EQ(d.cuDevResourceGenerateDesc(&description, split.groups.data(), 1), CUDA_SUCCESS);
  CUgreenCtx siblings[2] = {};
  for (CUgreenCtx& one : siblings)
    ASSERT_EQ(d.cuGreenCtxCreate(&one, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
              CUDA_SUCCESS);
  EXPECT_NE(siblings[0], siblings[1]);
  EXPECT_EQ(d.cuGreenCtxDestroy(siblings[0]), CUDA_SUCCESS);
  CUcontext left = nullptr;
  EXPECT_EQ(d.cuCtxFromGreenCtx(&left, siblings[1]), CUDA_SUCCESS);
  {
    Current entered(left);
    EXPECT_EQ(launch("empty", nullptr, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  }
  EXPECT_EQ(d.cuGreenCtxDestroy(siblings[1]), CUDA_SUCCESS);
}

TEST_F(PartitionFacts, TheDevicesAttributesTellAllMultiprocessors) {
  const Green made = green({split_device(device, 1).groups.at(0)});
  int outside = 0, inside = 0;
  constexpr auto which = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
  EXPECT_EQ(d.cuDeviceGetAttribute(&outside, which, device), CUDA_SUCCESS);
  Current entered(made.context);
  EXPECT_EQ(d.cuDeviceGetAttribute(&inside, which, device), CUDA_SUCCESS);
  EXPECT_EQ(inside, outside);
  EXPECT_GT(unsigned(inside), granted(made).sm.smCount);
}

TEST_F(PartitionFacts, GroupsOfOneSplitAreDisjoint) {
  CTXB_REQUIRE_NVIDIA("the software device has no multiprocessors");
  const Split split = split_device(device, 1);
  const auto first = seen_multiprocessors(green({split.groups.at(0)}).context);
  const auto second = seen_multiprocessors(green({split.groups.at(1)}).context);
  EXPECT_EQ(first.size(), split.groups[0].sm.smCount);
  EXPECT_EQ(second.size(), split.groups[1].sm.smCount);
  EXPECT_TRUE(common(first, second).empty());
}

TEST_F(PartitionFacts, GroupsOfTwoSplitsOverlap) {
  CTXB_REQUIRE_NVIDIA("the software device has no multiprocessors");
  const Split one = split_device(device, 1), another = split_device(device, 1);
  const auto first = seen_multiprocessors(green({one.groups.at(0)}).context);
  const auto second = seen_multiprocessors(green({another.groups.at(0)}).context);
  EXPECT_FALSE(common(first, second).empty());
}

class HogFacts : public PartitionFacts {
 protected:
  // More blocks than fit, so that no multiprocessor of the context has room beside it.
  unsigned hog_blocks() const { return d.is_software ? 2 : 2000; }
  unsigned hog_threads() const { return d.is_software ? 1 : 1024; }
  // Launched now, in a context with the primary's `kernels_ptx`: has it run to its end soon?
  bool small_kernel_ends(CUcontext context, std::chrono::milliseconds patience) const {
    const CUfunction empty = function("empty");
    Current entered(context);
    CUstream stream = nullptr;
    EXPECT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), CUDA_SUCCESS);
    const auto end = std::chrono::steady_clock::now() + patience;
    CUresult status = CUDA_ERROR_NOT_READY;
    while (status == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < end)
      status = d.cuStreamQuery(stream);
    EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    return status == CUDA_SUCCESS;
  }
};

TEST_F(HogFacts, HogInTheComplementOfTheSplitDelaysNobody) {
  Split split = split_device(device, 1);
  const Green victim = green({split.groups.at(0)});
  std::vector<CUdevResource> others(split.groups.begin() + 1, split.groups.end());
  const Green complement = green(others);
  const CUfunction hold = function("hold");
  Current entered(complement.context);
  Hold hog(hold, nullptr, hog_blocks(), hog_threads());
  EXPECT_TRUE(small_kernel_ends(victim.context, long_enough));
  EXPECT_EQ(d.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY) << "the hog still runs";
}

TEST_F(HogFacts, HogInThePrimaryHoldsUpEveryPartition) {
  CTXB_REQUIRE_NVIDIA("the software device may run them side by side");
  const Green victim = green({split_device(device, 1).groups.at(0)});
  Hold hog(function("hold"), nullptr, hog_blocks(), hog_threads());
  EXPECT_FALSE(small_kernel_ends(victim.context, a_while));
}

TEST_F(HogFacts, HogInAGreenContextOverAllHoldsUpItsNeighbour) {
  CTXB_REQUIRE_NVIDIA("the software device may run them side by side");
  const Green victim = green_over_all(), other = green_over_all();
  const CUfunction hold = function("hold");
  Current entered(other.context);
  Hold hog(hold, nullptr, hog_blocks(), hog_threads());
  EXPECT_FALSE(small_kernel_ends(victim.context, a_while));
}

TEST_F(HogFacts, HogInThePrimaryHoldsUpItsOtherStreams) {
  CTXB_REQUIRE_NVIDIA("the software device may run them side by side");
  Hold hog(function("hold"), nullptr, hog_blocks(), hog_threads());
  EXPECT_FALSE(small_kernel_ends(primary, a_while));
}

}  // namespace
}  // namespace ctxbroker::test
