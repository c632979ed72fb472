// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

// The fixture's retain is the first.
class PrimaryTest : public DriverTest {
 protected:
  bool active() const {
    unsigned flags = 0;
    int is_active = -1;
    EXPECT_EQ(d.cuDevicePrimaryCtxGetState(device, &flags, &is_active), CUDA_SUCCESS);
    return is_active == 1;
  }
  unsigned long long id_of(CUcontext context) const {
    unsigned long long id = 0;
    EXPECT_EQ(d.cuCtxGetId(context, &id), CUDA_SUCCESS);
    return id;
  }
  CUresult allocate() const {
    CUdeviceptr address = 0;
    return d.cuMemAlloc_v2(&address, 64);
  }
};

TEST_F(PrimaryTest, IsOneForAllWhoRetainIt) {
  CUcontext again = nullptr;
  EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&again, device), CUDA_SUCCESS);
  EXPECT_EQ(again, primary);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  EXPECT_TRUE(active());
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
}

TEST_F(PrimaryTest, DiesWithItsLastRelease) {
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  EXPECT_FALSE(active());
  EXPECT_EQ(allocate(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);  // for TearDown
}

TEST_F(PrimaryTest, OneReleaseTooManyTakesItFromItsOtherHolders) {
  CUcontext neighbours = nullptr;
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&neighbours, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS);
  EXPECT_EQ(allocate(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
}

TEST_F(PrimaryTest, ResetDestroysItForEveryoneAndKeepsTheRetains) {
  EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS);
  EXPECT_FALSE(active());
  CUcontext current = nullptr;
  EXPECT_EQ(d.cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, primary) << "the dead handle stays current";
  EXPECT_EQ(allocate(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  unsigned long long id = 0;
  EXPECT_EQ(d.cuCtxGetId(primary, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  // The fixture's retain is still counted.
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_ERROR_INVALID_CONTEXT);
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
}

// cudart still looks these up.
TEST_F(PrimaryTest, FirstVersionsOfResetAndReleaseDifferFromLaterOnes) {
  CUcontext again = nullptr;
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&again, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxReset(device), CUDA_SUCCESS) << "gives one retain back";
  EXPECT_FALSE(active());
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease(device), CUDA_SUCCESS) << "one too many is no error";
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_SPIN),
            CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
}

TEST_F(PrimaryTest, ComesBackWithTheSameHandleAndAnotherId) {
  unsigned long long first = id_of(primary);
  ASSERT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS);
  CUcontext reborn = nullptr;
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&reborn, device), CUDA_SUCCESS);
  EXPECT_EQ(reborn, primary);
  EXPECT_NE(id_of(reborn), first);
  EXPECT_EQ(allocate(), CUDA_SUCCESS) << "the handle that stayed current works again";
  // Retained before and after the reset: two releases end it.
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  EXPECT_TRUE(active());
}

TEST_F(PrimaryTest, ResetReachesOtherThreads) {
  CUresult before = CUDA_ERROR_UNKNOWN, after = CUDA_ERROR_UNKNOWN;
  std::thread([&] {
    d.cuCtxSetCurrent(primary);
    before = allocate();
    std::thread([&] { d.cuDevicePrimaryCtxReset_v2(device); }).join();
    after = allocate();
  }).join();
  EXPECT_EQ(before, CUDA_SUCCESS);
  EXPECT_EQ(after, CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(PrimaryTest, ResetGivesItsMemoryBack) {
  CUdeviceptr address = 0;
  std::size_t bytes = std::size_t(32) << 20;
  ASSERT_EQ(d.cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
  ASSERT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS);
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
}

TEST_F(PrimaryTest, CannotBeDestroyedLikeAPrivateContext) {
  EXPECT_EQ(d.cuCtxDestroy_v2(primary), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(allocate(), CUDA_SUCCESS);
}

TEST_F(PrimaryTest, RemembersItsFlagsUntilAReset) {
  ASSERT_EQ(d.cuDevicePrimaryCtxSetFlags_v2(device, CU_CTX_SCHED_YIELD), CUDA_SUCCESS);
  unsigned flags = 0;
  int is_active = 0;
  EXPECT_EQ(d.cuDevicePrimaryCtxGetState(device, &flags, &is_active), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_CTX_SCHED_YIELD));
  EXPECT_EQ(d.cuCtxGetFlags(&flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned(CU_CTX_SCHED_YIELD) | CU_CTX_MAP_HOST);
  EXPECT_EQ(d.cuDevicePrimaryCtxSetFlags_v2(device, 0x12345600), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxGetState(device, &flags, &is_active), CUDA_SUCCESS);
  EXPECT_EQ(flags, 0u);
}

}  // namespace
}  // namespace ctxbroker::test
