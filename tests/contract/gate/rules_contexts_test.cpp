// SPDX-License-Identifier: Apache-2.0
// Contexts that a tenant's code makes: they are booked until the driver has ended them, however
// often they were attached.
#include <gmock/gmock.h>

#include "rules_fixture.hpp"

namespace ctxbroker {
namespace {

class OwnContextsTest : public RulesTest {
 protected:
  // Makes a context with memory in it, and leaves it current.
  static CUcontext make_with_memory(std::size_t bytes, CUdeviceptr* memory) {
    CUcontext made = nullptr;
    check_driver_call("cuCtxCreate_v2", &made, 0U, CUdevice{0});
    check_driver_call("cuMemAlloc_v2", memory, bytes);
    return made;
  }
  static CUresult attach() {
    CUcontext attached = nullptr;
    const CUresult status = driver_call("cuCtxAttach", &attached, 0U);
    EXPECT_EQ(attached, status == CUDA_SUCCESS ? current() : nullptr);
    return status;
  }
  static CUresult detach(CUcontext context) { return driver_call("cuCtxDetach", context); }
  static CUresult fill(CUdeviceptr memory, std::size_t bytes) {
    return driver_call("cuMemsetD8_v2", memory, static_cast<unsigned char>(1), bytes);
  }
  void expect_held(const Tenant& tenant, std::uint64_t contexts, std::uint64_t memories) {
    EXPECT_EQ(held(tenant, "context").count, contexts);
    EXPECT_EQ(held(tenant, "device memory").count, memories);
  }
};

TEST_F(OwnContextsTest, AttachedContextIsHeldUntilItsLastDetach) {
  Tenant tenant = open(broker, "attaches", LeaseKind::shared);
  tenant.run(0, [&] {
    CUdeviceptr memory = 0;
    CUcontext const made = make_with_memory(mib, &memory);
    EXPECT_EQ(attach(), CUDA_SUCCESS);
    EXPECT_EQ(attach(), CUDA_SUCCESS);
    for (int uses = 2; uses > 0; --uses) {
      EXPECT_EQ(detach(made), CUDA_SUCCESS);
      EXPECT_EQ(current(), made) << "the driver has ended one use only";
      EXPECT_EQ(fill(memory, mib), CUDA_SUCCESS);
      expect_held(tenant, 1, 1);
    }
    EXPECT_EQ(detach(made), CUDA_SUCCESS);
    EXPECT_NE(current(), made);
    expect_held(tenant, 0, 0);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

// It took more than its budget, which stayed lost after the tenant's end.
TEST_F(OwnContextsTest, MemoryOfAnAttachedContextStaysInTheBudgetAfterADetach) {
  constexpr std::size_t budget = 1024 * mib, each = 300 * mib;
  Tenant looks = open(broker, "looks", LeaseKind::shared);
  Tenant tenant = open(broker, "attaches", LeaseKind::shared, budget);
  tenant.lease();
  const std::size_t before = free_memory(looks);
  std::size_t taken = 0, refused = 0;
  tenant.run(0, [&] {
    for (int i = 0; i < 4; ++i) {
      CUcontext made = nullptr, popped = nullptr;
      CUdeviceptr memory = 0;
      if (driver_call("cuCtxCreate_v2", &made, 0U, CUdevice{0}) != CUDA_SUCCESS) {
        ++refused;
        continue;
      }
      if (driver_call("cuMemAlloc_v2", &memory, each) == CUDA_SUCCESS) {
        taken += each;
      } else {
        ++refused;
      }
      EXPECT_EQ(attach(), CUDA_SUCCESS);
      EXPECT_EQ(detach(made), CUDA_SUCCESS);
      EXPECT_TRUE(memory == 0 || fill(memory, each) == CUDA_SUCCESS);
      driver_call("cuCtxPopCurrent_v2", &popped);
    }
  });
  EXPECT_GE(taken, each);
  EXPECT_LE(taken, budget);
  EXPECT_GE(refused, 1U);
  EXPECT_GE(metrics_of(tenant).held_bytes, taken);
  tenant.close();
  // Other programs may take and free memory of a GPU meanwhile.
  if (SoftwareControls(broker.driver().path)) {
    EXPECT_EQ(free_memory(looks), before);
  }
}

TEST_F(OwnContextsTest, AttachThatTheDriverRefusesCountsNothing) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "the driver cannot be told to refuse";
  Tenant tenant = open(broker, "attaches", LeaseKind::shared);
  tenant.run(0, [&] {
    CUdeviceptr memory = 0;
    CUcontext const made = make_with_memory(mib, &memory);
    controls.fail_call("cuCtxAttach", 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(attach(), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(detach(made), CUDA_SUCCESS);
    EXPECT_NE(current(), made) << "the first detach is the last";
    expect_held(tenant, 0, 0);
  });
  controls.stop_counting();
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_F(OwnContextsTest, DetachThatTheDriverRefusesForgetsNothing) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "the driver cannot be told to refuse";
  Tenant tenant = open(broker, "attaches", LeaseKind::shared);
  tenant.run(0, [&] {
    CUdeviceptr memory = 0;
    CUcontext const made = make_with_memory(mib, &memory);
    EXPECT_EQ(attach(), CUDA_SUCCESS);
    for (const bool is_last : {false, true}) {
      controls.fail_call("cuCtxDetach", 1, CUDA_ERROR_INVALID_CONTEXT);
      EXPECT_EQ(detach(made), CUDA_ERROR_INVALID_CONTEXT);
      expect_held(tenant, 1, 1);
      EXPECT_EQ(fill(memory, mib), CUDA_SUCCESS);
      EXPECT_EQ(detach(made), CUDA_SUCCESS);
      expect_held(tenant, is_last ? 0 : 1, is_last ? 0 : 1);
    }
  });
  controls.stop_counting();
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_F(OwnContextsTest, UsesOfATenantsContextByTheHostCountToo) {
  Tenant tenant = open(broker, "attaches", LeaseKind::shared);
  CUcontext made = nullptr, popped = nullptr;
  tenant.run(0, [&] {
    check_driver_call("cuCtxCreate_v2", &made, 0U, CUdevice{0});
    check_driver_call("cuCtxPopCurrent_v2", &popped);
  });
  check_driver_call("cuCtxPushCurrent_v2", made);
  EXPECT_EQ(attach(), CUDA_SUCCESS);
  EXPECT_EQ(detach(made), CUDA_SUCCESS);
  EXPECT_EQ(held(tenant, "context").count, 1U);
  EXPECT_EQ(detach(made), CUDA_SUCCESS);
  EXPECT_EQ(held(tenant, "context").count, 0U);
  EXPECT_EQ(current(), nullptr);
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_F(OwnContextsTest, ContextOfALeaseCanBeNeitherAttachedNorDetached) {
  Tenant tenant = open(broker, "attaches", LeaseKind::private_own);
  tenant.run(0, [&] {
    EXPECT_EQ(attach(), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(detach(current()), CUDA_ERROR_INVALID_CONTEXT);
    CUdeviceptr memory = 0;
    EXPECT_EQ(driver_call("cuMemAlloc_v2", &memory, mib), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 2U);
}

}  // namespace
}  // namespace ctxbroker
