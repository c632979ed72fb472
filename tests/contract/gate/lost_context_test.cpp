// SPDX-License-Identifier: Apache-2.0
// When the context of a private lease's lost life is given back: at once when nothing can use it or
// what was made in it, and not before. Counted in device memory.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "support/driver_by_name.hpp"
#include "support/raw_driver.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

constexpr std::size_t ballast_bytes = std::size_t{64} << 20;

class LostContextTest : public ::testing::Test {
 protected:
  LostContextTest()
      : broker(Broker::open()),
        raw(broker.driver().path),
        tenant(broker.open_tenant("loser", {LeaseChoice(LeaseKind::private_own)})),
        primary(broker.host().lease().context) {}

  std::size_t free_memory() const {
    const Entered inside(raw, primary);
    return raw.free_memory();
  }
  // Memory in the tenant's context that no ledger knows of: it ends with the context, which weighs
  // nothing on the software device.
  void load_ballast() {
    const Guard guard(tenant);
    ASSERT_EQ(raw.allocate(ballast_bytes), CUDA_SUCCESS);
  }
  void lose() { ASSERT_TRUE(broker.force_loss(tenant.id(), 0, "a test")); }
  // Calls poll and returns how many bytes of device memory it gave back.
  std::size_t polled() {
    const std::size_t before = free_memory();
    broker.poll();
    const std::size_t after = free_memory();
    return after > before ? after - before : 0;
  }

  Broker broker;
  RawDriver raw;
  Tenant tenant;
  CUcontext primary;
};

TEST_F(LostContextTest, IsGivenBackOnceNobodyIsInside) {
  load_ballast();
  {
    const Guard inside(tenant);
    lose();
    EXPECT_LT(polled(), ballast_bytes) << "a thread is inside";
    const Guard next(tenant);
    EXPECT_LT(polled(), ballast_bytes) << "and stays there";
  }
  EXPECT_GE(polled(), ballast_bytes);
  EXPECT_EQ(polled(), 0U);
  const Guard guard(tenant);
  EXPECT_EQ(current(), tenant.lease().context);
}

TEST_F(LostContextTest, StaysUntilTheEndOfARealTimeSession) {
  load_ballast();
  lose();
  broker.begin_realtime();
  EXPECT_LT(polled(), ballast_bytes);
  broker.end_realtime();
  EXPECT_GE(polled(), ballast_bytes);
}

TEST_F(LostContextTest, IsGivenBackBeforeTheNextOneIsMade) {
  const std::uint64_t first = tenant.lease().generation;
  const std::size_t before = free_memory();
  for (int i = 0; i < 3; ++i) {
    load_ballast();
    lose();
  }
  { const Guard last(tenant); }
  EXPECT_GE(free_memory() + ballast_bytes, before);
  EXPECT_GT(tenant.lease().generation, first);
}

TEST_F(LostContextTest, StaysWhileTheTenantsCodeHoldsSomethingOfIt) {
  load_ballast();
  CUstream stream = nullptr;
  {
    const Guard guard(tenant);
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 0U), CUDA_SUCCESS);
  }
  lose();
  EXPECT_LT(polled(), ballast_bytes);
  {
    const Guard guard(tenant);
    EXPECT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS) << "it is used yet";
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
  }
  EXPECT_GE(polled(), ballast_bytes);
}

TEST_F(LostContextTest, StaysWhileTheHostHoldsSomethingOfIt) {
  load_ballast();
  const CUstream stream = tenant.create_stream();
  lose();
  EXPECT_LT(polled(), ballast_bytes);
  tenant.destroy_stream(stream);
  EXPECT_GE(polled(), ballast_bytes);
}

// A runtime library has ways past the gate, and keeps what it knows of a context.
TEST_F(LostContextTest, StaysWithARuntimeLibraryUntilTheTenantEnds) {
  {
    const Guard guard(tenant);
    const void* table = nullptr;
    const CUuuid unknown{};
    driver_call("cuGetExportTable", &table, &unknown);
  }
  load_ballast();
  lose();
  EXPECT_LT(polled(), ballast_bytes);
  const std::size_t before = free_memory();
  tenant.close();
  EXPECT_GE(free_memory(), before + ballast_bytes);
}

// Its handle is all that may be left of it.
TEST_F(LostContextTest, OldHandleOfALostContextMeansTheNextGeneration) {
  const CUcontext old = tenant.lease().context;
  load_ballast();
  lose();
  ASSERT_GE(polled(), ballast_bytes);
  Tenant neighbour = broker.open_tenant("neighbour", {LeaseChoice(LeaseKind::private_own)});
  neighbour.lease();  // may have the handle's value now
  const Guard guard(tenant);
  const CUcontext now = current();
  if (neighbour.lease().context == old) {
    EXPECT_EQ(driver_call("cuCtxSetCurrent", old), CUDA_ERROR_INVALID_CONTEXT);
  } else {
    EXPECT_EQ(driver_call("cuCtxSetCurrent", old), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxPushCurrent_v2", old), CUDA_SUCCESS);
    EXPECT_EQ(current(), now);
    CUcontext popped = nullptr;
    EXPECT_EQ(driver_call("cuCtxPopCurrent_v2", &popped), CUDA_SUCCESS);
  }
  EXPECT_EQ(current(), now);
  EXPECT_NE(driver_call("cuCtxDestroy_v2", old), CUDA_SUCCESS);
}

// Threads that enter at the same time are in a life that stands, the old or the next.
TEST_F(LostContextTest, ThreadsThatEnterMeanwhileFindAContext) {
  const int losses = driver_is_software() ? 60 : 5;
  tenant.lease();
  std::atomic<bool> over{false};
  std::atomic<int> wrong{0};
  std::atomic<std::uint64_t> entered{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (!over) {
          const Guard guard(tenant);
          CUdevice device = -1;
          if (driver_call("cuCtxGetDevice", &device) != CUDA_SUCCESS) ++wrong;
          ++entered;
        }
      });
    }
    for (int i = 0; i < losses; ++i) {
      lose();
      broker.poll();
      const std::uint64_t generation = tenant.lease().generation;
      const std::uint64_t seen = entered;
      while (entered == seen) std::this_thread::yield();
      EXPECT_EQ(tenant.lease().generation, generation);
    }
    over = true;
  }
  EXPECT_EQ(wrong, 0);
  load_ballast();
  lose();
  EXPECT_GE(polled(), ballast_bytes) << "and all are gone";
}

}  // namespace
}  // namespace ctxbroker
