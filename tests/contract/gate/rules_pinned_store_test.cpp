// SPDX-License-Identifier: Apache-2.0
// Pinned memory from an arena of the tenant's own. It looks like the driver's memory, and neither
// an allocation nor a free holds up a neighbour.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "pinned_store_fixture.hpp"
#include "support/hung_kernel.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class PinnedStoreTest : public PinnedStoreFixture {};

INSTANTIATE_TEST_SUITE_P(Kinds, PinnedStoreTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::green),
                         [](const auto& one) { return to_string(one.param); });

TEST_P(PinnedStoreTest, MemoryComesFromAnArenaIfTheHostChoosesOne) {
  Tenant pooled = open_with("pooled", MemorySource::pool);
  Tenant plain = open_with("plain", MemorySource::driver);
  TenantOptions apart{LeaseChoice(LeaseKind::private_own)};
  apart.memory = MemorySource::pool;
  Tenant alone = broker.open_tenant("alone", apart);
  pooled.run(0, [&] {
    for (const unsigned flags : {0U, 1U, 2U, 3U}) EXPECT_TRUE(is_stored(pin(mib, flags))) << flags;
    EXPECT_FALSE(is_stored(pin(mib, CU_MEMHOSTALLOC_WRITECOMBINED)));
    void* plainly = nullptr;
    EXPECT_EQ(driver_call("cuMemAllocHost_v2", &plainly, mib), CUDA_SUCCESS);
    EXPECT_TRUE(is_stored(plainly));
  });
  plain.run(0, [&] { EXPECT_FALSE(is_stored(pin(mib))); });
  alone.run(0, [&] { EXPECT_FALSE(is_stored(pin(mib))); });
}

TEST_P(PinnedStoreTest, MemoryCountsInTheLimitUntilItIsFreed) {
  Tenant tenant = open_with("poor", MemorySource::pool, 4 * mib);
  tenant.run(0, [&] {
    void* more = nullptr;
    void* const address = pin(3 * mib);
    EXPECT_EQ(driver_call("cuMemHostAlloc", &more, 2 * mib, 0U), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(held(tenant, "pinned host memory").count, 1U);
    EXPECT_EQ(unpin(address), CUDA_SUCCESS);
    EXPECT_EQ(held(tenant, "pinned host memory").count, 0U);
    pin(4 * mib);
  });
}

TEST_P(PinnedStoreTest, CopiesAndMemsetsWorkInBothPlaces) {
  Tenant tenant = open_with("copies", MemorySource::pool);
  tenant.run(0, [&] {
    constexpr std::size_t bytes = 3 * mib;
    char* const from = chars_at(pin(bytes));
    char* const to = chars_at(pin(bytes));
    CUdeviceptr between = 0;
    ASSERT_EQ(driver_call("cuMemAlloc_v2", &between, bytes), CUDA_SUCCESS);
    for (std::size_t i = 0; i < bytes; ++i) from[i] = static_cast<char>(i * 7);
    const auto* const source = static_cast<const void*>(from);
    EXPECT_EQ(driver_call("cuMemcpyHtoD_v2", between, source, bytes), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemcpyDtoH_v2", static_cast<void*>(to), between, bytes), CUDA_SUCCESS);
    EXPECT_EQ(std::memcmp(from, to, bytes), 0);
    EXPECT_EQ(driver_call("cuMemsetD8_v2", on_device(to), static_cast<unsigned char>(5), bytes),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemcpyDtoD_v2", between, on_device(to), bytes), CUDA_SUCCESS)
        << "in the device's place";
    char word[8] = {};
    EXPECT_EQ(driver_call("cuMemcpyDtoH_v2", static_cast<void*>(word), on_device(to) + bytes - 8,
                          sizeof word),
              CUDA_SUCCESS);
    EXPECT_EQ(word[7], 5);
    EXPECT_EQ(driver_call("cuMemFree_v2", between), CUDA_SUCCESS);
  });
}

TEST_P(PinnedStoreTest, BlocksOfManySizesDoNotOverlap) {
  Tenant tenant = open_with("random", MemorySource::pool);
  tenant.run(0, [&] {
    struct Block {
      char* address;
      std::size_t bytes;
      char pattern;
    };
    std::mt19937 random(20);
    std::deque<Block> blocks;
    const auto free_first = [&] {
      const Block one = blocks.front();
      blocks.pop_front();
      const bool is_whole = std::all_of(one.address, one.address + one.bytes,
                                        [&](char byte) { return byte == one.pattern; });
      EXPECT_TRUE(is_whole) << one.bytes;
      EXPECT_EQ(unpin(one.address), CUDA_SUCCESS);
    };
    for (int i = 0; i < 600; ++i) {
      const std::size_t most = i % 40 == 0 ? 5 * mib : i % 3 == 0 ? 200'000 : 3000;
      const std::size_t bytes = 1 + random() % most;
      Block one{chars_at(pin(bytes)), bytes, static_cast<char>(i)};
      std::memset(one.address, one.pattern, one.bytes);
      blocks.push_back(one);
      if (i % 7 == 0) std::shuffle(blocks.begin(), blocks.end(), random);
      if (blocks.size() > 60) free_first();
    }
    while (!blocks.empty()) free_first();
  });
  EXPECT_EQ(held(tenant, "pinned host memory").count, 0U);
}

// The arena keeps its lists of blocks elsewhere.
TEST_P(PinnedStoreTest, CodeThatWritesBeyondItsBlockDoesNotBreakTheArena) {
  Tenant tenant = open_with("overruns", MemorySource::pool);
  tenant.run(0, [&] {
    std::vector<void*> blocks(8);
    for (void*& one : blocks) one = pin(100);
    void* const first = *std::min_element(blocks.begin(), blocks.end());
    std::memset(first, 0xff, 8 * 512);
    for (void* const one : blocks) EXPECT_EQ(unpin(one), CUDA_SUCCESS);
    for (void*& one : blocks) one = pin(1000);
    std::sort(blocks.begin(), blocks.end());
    for (std::size_t i = 1; i < blocks.size(); ++i) {
      EXPECT_GE(chars_at(blocks[i]) - chars_at(blocks[i - 1]), 1000);
    }
    for (void* const one : blocks) EXPECT_EQ(unpin(one), CUDA_SUCCESS);
  });
}

TEST_P(PinnedStoreTest, FreedMemoryGoesToATenantThatNeedsIt) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device can be told to fail";
  Tenant tenant = open_with("keeps", MemorySource::pool);
  Tenant other = open_with("needs", MemorySource::pool);
  void* const kept = tenant.run(0, [] {
    void* const large = pin(8 * mib);
    EXPECT_EQ(unpin(large), CUDA_SUCCESS);
    return large;
  });
  EXPECT_TRUE(is_known(raw, kept)) << "the tenant's arena keeps it";
  ASSERT_EQ(controls.fail_call("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
  other.run(0, [&] { EXPECT_EQ(unpin(pin(3 * mib)), CUDA_SUCCESS); });
  EXPECT_FALSE(is_known(raw, kept));
  ASSERT_EQ(controls.fail_call("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
  other.run(0, [&] {
    void* address = nullptr;
    EXPECT_EQ(driver_call("cuMemHostAlloc", &address, 64 * mib, 0U), CUDA_SUCCESS)
        << "the other's own free memory was given back";
  });
}

TEST_P(PinnedStoreTest, MemoryThatIsTakenAheadServesAllocationsThatFit) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device counts calls";
  for (const std::uint64_t ahead : {std::uint64_t{0}, std::uint64_t{16 * mib}}) {
    TenantOptions options{LeaseChoice(GetParam())};
    options.memory = MemorySource::pool;
    options.pinned_ahead = ahead;
    Tenant tenant = broker.open_tenant("ahead", options);
    tenant.run(0, [&] {
      controls.start_counting();
      void* const large = pin(10 * mib);
      void* const small = pin(100);
      const std::uint64_t grown = controls.call_count("cuMemCreate");
      controls.stop_counting();
      EXPECT_EQ(grown, ahead == 0 ? 2U : 0U);
      EXPECT_EQ(unpin(large), CUDA_SUCCESS);
      EXPECT_EQ(unpin(small), CUDA_SUCCESS);
    });
  }
}

TEST_P(PinnedStoreTest, MemoryIsGivenBackWhenTheTenantCloses) {
  for (const bool loses_its_lease : {false, true}) {
    Tenant tenant = open_with("leaks", MemorySource::pool);
    void* const large = tenant.run(0, [] { return pin(8 * mib); });
    void* const small = tenant.run(0, [] { return pin(100); });
    if (loses_its_lease) {
      lose_lease(tenant);
      tenant.run(0, [&] { EXPECT_EQ(unpin(pin(mib)), CUDA_SUCCESS) << "in the next lease"; });
    }
    EXPECT_TRUE(is_known(raw, large));
    tenant.close();
    EXPECT_TRUE(comes_true([&] {
      broker.poll();
      return !is_known(raw, large) && !is_known(raw, small);
    })) << loses_its_lease;
  }
  EXPECT_THAT(said(),
              Contains(HasSubstr("gave back what the tenant left: 2 x pinned host memory")));
  EXPECT_THAT(said(), Not(Contains(HasSubstr("could not be given back"))));
}

TEST_P(PinnedStoreTest, MemoryOfALostLeaseIsFreedInTheNextOne) {
  Tenant tenant = open_with("loses", MemorySource::pool);
  void* const address = tenant.run(0, [&] { return pin(mib); });
  lose_lease(tenant);
  tenant.run(0, [&] {
    EXPECT_EQ(driver_call("cuMemsetD8_v2", on_device(address), static_cast<unsigned char>(1), mib),
              CUDA_SUCCESS);
    EXPECT_EQ(unpin(address), CUDA_SUCCESS);
    EXPECT_EQ(unpin(pin(mib)), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
  EXPECT_EQ(held(tenant, "pinned host memory").count, 0U);
}

// The gate absorbs the reset, and so the memory stays, as the driver's does.
TEST_P(PinnedStoreTest, MemoryStaysWhenTheTenantResetsTheDevice) {
  for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
    Tenant tenant = open_with("resets", source);
    tenant.run(0, [&] {
      void* const address = pin(mib);
      EXPECT_EQ(driver_call("cuDevicePrimaryCtxReset_v2", 0), CUDA_SUCCESS);
      std::memset(address, 1, mib);
      EXPECT_EQ(unpin(address), CUDA_SUCCESS) << to_string(source);
    });
  }
}

// A free answers as for the driver's memory, which the driver has freed. The arena's memory is
// still there then, so that code which has not noticed the loss does not crash.
TEST_P(PinnedStoreTest, MemoryOfADestroyedPrimaryContextIsGivenBackLater) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls || GetParam() != LeaseKind::shared) {
    GTEST_SKIP() << "a shielded primary is destroyed on the software device alone";
  }
  std::vector<CUresult> answers[2];
  for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
    const bool is_pooled = source == MemorySource::pool;
    Tenant tenant = open_with("loses", source);
    void* const address = tenant.run(0, [] { return pin(mib); });
    {
      const Entered entered(raw, tenant.lease().context);
      ASSERT_EQ(controls.fail_call("cuCtxSynchronize", 1, CUDA_ERROR_CONTEXT_IS_DESTROYED), 0);
      EXPECT_EQ(raw.synchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    EXPECT_EQ(tenant.report_status(0, CUDA_ERROR_CONTEXT_IS_DESTROYED), LeaseState::lost);
    if (is_pooled) std::memset(address, 1, mib);
    tenant.run(0, [&] { answers[is_pooled ? 1 : 0] = {unpin(address), unpin(pin(mib))}; });
    tenant.close();
    EXPECT_TRUE(comes_true([&] {
      broker.poll();
      return !is_known(raw, address);
    })) << to_string(source);
  }
  EXPECT_EQ(answers[1], answers[0]);
}

// The driver's own free waits, too, and some programs rely on that.
TEST_P(PinnedStoreTest, FreeWaitsForTheTenantsOwnWork) {
  const HungKernel slow;
  Tenant tenant = open_with("works", MemorySource::pool);
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    const CUfunction kernel = slow.load();
    slow.launch(kernel, stream, slow.open());
    ASSERT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    void* const used = pin(mib);
    slow.launch(kernel, stream, slow.held());
    const std::jthread end([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      slow.let_go();
    });
    EXPECT_EQ(unpin(used), CUDA_SUCCESS);
    EXPECT_FALSE(slow.is_held());
  });
}

TEST_P(PinnedStoreTest, FreeWaitsForTheTenantsOwnWorkOnOtherDevices) {
  if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices; the driver has one";
  const HungKernel slow;
  Tenant tenant = open_with("works", MemorySource::pool);
  void* const used = tenant.run(0, [] { return pin(mib); });
  tenant.run(1, [&] {
    CUstream stream = nullptr;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    const CUfunction kernel = slow.load();
    slow.launch(kernel, stream, slow.open());
    ASSERT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    slow.launch(kernel, stream, slow.held());
  });
  const std::jthread end([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    slow.let_go();
  });
  tenant.run(0, [&] { EXPECT_EQ(unpin(used), CUDA_SUCCESS); });
  EXPECT_FALSE(slow.is_held());
}

TEST_P(PinnedStoreTest, MemoryComesFromTheDriverDuringACapture) {
  Tenant tenant = open_with("captures", MemorySource::pool);
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    void* const freed = pin(mib);
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_SUCCESS);
    void* const taken = pin(mib);
    EXPECT_FALSE(is_stored(taken));
    EXPECT_EQ(unpin(freed), CUDA_SUCCESS);
    CUgraph graph = nullptr;
    EXPECT_EQ(driver_call("cuStreamEndCapture", stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuGraphDestroy", graph), CUDA_SUCCESS);
    EXPECT_EQ(unpin(taken), CUDA_SUCCESS);
  });
}

TEST_P(PinnedStoreTest, MemoryHoldsUpNoNeighbourInARealTimeSession) {
  for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
    Tenant tenant = open_with("pins", source);
    tenant.run(0, [&] { EXPECT_EQ(unpin(pin(mib)), CUDA_SUCCESS); });
    broker.begin_realtime();
    tenant.run(0, [&] {
      EXPECT_EQ(unpin(pin(mib)), CUDA_SUCCESS);
      void* plainly = nullptr;
      EXPECT_EQ(driver_call("cuMemAllocHost_v2", &plainly, mib), CUDA_SUCCESS);
      EXPECT_EQ(unpin(plainly), CUDA_SUCCESS);
    });
    auto calls = metrics_of(tenant).realtime;
    const std::uint64_t by_driver = source == MemorySource::driver ? 1 : 0;
    EXPECT_EQ(calls["cuMemHostAlloc"].count, by_driver) << to_string(source);
    EXPECT_EQ(calls["cuMemAllocHost"].count, by_driver) << to_string(source);
    EXPECT_EQ(calls["cuMemFreeHost"].count, 2 * by_driver) << to_string(source);
    tenant.run(0, [&] { EXPECT_EQ(unpin(pin(mib, CU_MEMHOSTALLOC_WRITECOMBINED)), CUDA_SUCCESS); });
    broker.end_realtime();
    calls = metrics_of(tenant).realtime;
    EXPECT_EQ(calls["cuMemHostAlloc"].count, by_driver + 1) << "the driver's memory";
    EXPECT_EQ(calls["cuMemFreeHost"].count, 2 * by_driver + 1) << "the driver's memory";
  }
}

TEST_P(PinnedStoreTest, ManyThreadsTakeAndFree) {
  Tenant tenant = open_with("threads", MemorySource::pool);
  std::vector<std::jthread> all;
  for (int number = 0; number < 4; ++number) {
    all.emplace_back([&, number] {
      tenant.run(0, [&] {
        for (int i = 0; i < 100; ++i) {
          char* const one = chars_at(pin(4096));
          char* const other = chars_at(pin(64 * 1024));
          std::memset(one, number, 4096);
          std::memset(other, number, 64 * 1024);
          EXPECT_TRUE(std::all_of(one, one + 4096, [&](char byte) { return byte == number; }));
          EXPECT_EQ(unpin(other), CUDA_SUCCESS);
          EXPECT_EQ(unpin(one), CUDA_SUCCESS);
        }
      });
    });
  }
  all.clear();
  EXPECT_EQ(held(tenant, "pinned host memory").count, 0U);
}

TEST_P(PinnedStoreTest, AllDevicesCanUseIt) {
  if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices; the driver has one";
  Tenant tenant = open_with("tenant", MemorySource::pool);
  char* const memory = tenant.run(0, [] { return chars_at(pin(mib)); });
  tenant.run(1, [&] {
    EXPECT_EQ(driver_call("cuMemsetD8_v2", on_device(memory), static_cast<unsigned char>(9), mib),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
  });
  EXPECT_TRUE(std::all_of(memory, memory + mib, [](char byte) { return byte == 9; }));
}

}  // namespace
}  // namespace ctxbroker
