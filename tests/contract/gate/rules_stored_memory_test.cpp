// SPDX-License-Identifier: Apache-2.0
// Device memory from a pool of the tenant's own. It looks like the driver's memory, and no free
// waits for a neighbour.
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "rules_fixture.hpp"
#include "store_support.hpp"
#include "support/hung_kernel.hpp"

namespace ctxbroker {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

CUdeviceptr take(std::size_t bytes) {
  CUdeviceptr address = 0;
  EXPECT_EQ(driver_call("cuMemAlloc_v2", &address, bytes), CUDA_SUCCESS);
  return address;
}
CUresult give(CUdeviceptr address) {
  return driver_call("cuMemFree_v2", address);
}

// ---- The tenant's view ----

class StoredMemoryTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  void SetUp() override {
    if (!has_memory_pools(raw)) GTEST_SKIP() << "the device has no memory pools";
  }
  Tenant open_with(const char* name, MemorySource source, std::uint64_t budget = 0) {
    TenantOptions options{LeaseChoice(GetParam())};
    options.memory = source;
    options.driver_memory_budget = budget;
    return broker.open_tenant(name, options);
  }
  bool is_of_a_pool(CUdeviceptr address) const { return ctxbroker::is_of_a_pool(raw, address); }
};

INSTANTIATE_TEST_SUITE_P(Kinds, StoredMemoryTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::green),
                         [](const auto& one) { return to_string(one.param); });

TEST_P(StoredMemoryTest, MemoryComesFromAPoolIfTheHostChoosesOne) {
  Tenant pooled = open_with("pooled", MemorySource::pool);
  Tenant plain = open_with("plain", MemorySource::driver);
  TenantOptions apart{LeaseChoice(LeaseKind::private_own)};
  apart.memory = MemorySource::pool;
  Tenant alone = broker.open_tenant("alone", apart);
  pooled.run(0, [&] { EXPECT_TRUE(is_of_a_pool(take(mib))); });
  plain.run(0, [&] { EXPECT_FALSE(is_of_a_pool(take(mib))); });
  alone.run(0, [&] { EXPECT_FALSE(is_of_a_pool(take(mib))) << "no neighbour waits"; });
}

// Returns all that the driver reports about an address.
std::vector<std::string> told(CUdeviceptr address, std::size_t bytes) {
  std::vector<std::string> all;
  const auto ask = [&](CUpointer_attribute which, std::uint64_t but = 0) {
    std::uint64_t value = 0;
    const CUdeviceptr inside = address + bytes / 2;
    const CUresult status =
        driver_call("cuPointerGetAttribute", static_cast<void*>(&value), which, inside);
    all.push_back(std::to_string(which) + ": " + std::to_string(status) + " " +
                  (status == CUDA_SUCCESS ? std::to_string(value - but) : ""));
    std::uint64_t again = 0;
    void* out = &again;
    CUpointer_attribute asked = which;
    if (driver_call("cuPointerGetAttributes", 1U, &asked, &out, inside) == CUDA_SUCCESS &&
        status == CUDA_SUCCESS) {
      EXPECT_EQ(again, value) << which;
    }
  };
  ask(CU_POINTER_ATTRIBUTE_CONTEXT);
  ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address);
  ask(CU_POINTER_ATTRIBUTE_HOST_POINTER);
  ask(CU_POINTER_ATTRIBUTE_IS_MANAGED);
  ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
  ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  ask(CU_POINTER_ATTRIBUTE_MAPPED);
  ask(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
  CUdeviceptr base = 0;
  std::size_t size = 0;
  const CUresult status = driver_call("cuMemGetAddressRange_v2", &base, &size, address + bytes / 2);
  all.push_back("range: " + std::to_string(status) + " " + std::to_string(base - address) + " " +
                std::to_string(size));
  return all;
}

TEST_P(StoredMemoryTest, MemoryLooksLikeTheDrivers) {
  constexpr std::size_t sizes[] = {1, 4096, 100'000, mib};
  for (const std::size_t bytes : sizes) {
    std::vector<std::string> answers[2];
    for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
      Tenant tenant = open_with("looks", source);
      tenant.run(0, [&] {
        const bool is_pooled = source == MemorySource::pool;
        std::vector<std::string>& all = answers[is_pooled ? 1 : 0];
        const CUdeviceptr address = take(bytes);
        EXPECT_EQ(address % 256, 0U);
        EXPECT_EQ(is_of_a_pool(address), is_pooled);
        CUcontext context = nullptr;
        EXPECT_EQ(driver_call("cuPointerGetAttribute", static_cast<void*>(&context),
                              CU_POINTER_ATTRIBUTE_CONTEXT, address),
                  CUDA_SUCCESS);
        EXPECT_EQ(context, current());
        all = told(address, bytes);
        all.erase(all.begin());  // each has its own context
      });
    }
    EXPECT_EQ(answers[1], answers[0]) << bytes;
  }
}

TEST_P(StoredMemoryTest, WrongCallsAreAnsweredAsForTheDriversOwn) {
  std::vector<CUresult> answers[2];
  for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
    Tenant tenant = open_with("wrong", source), neighbour = open_with("neighbour", source);
    std::vector<CUresult>& all = answers[source == MemorySource::pool ? 1 : 0];
    CUdeviceptr theirs = neighbour.run(0, [&] { return take(mib); });
    tenant.run(0, [&] {
      CUdeviceptr address = 0;
      CUdeviceptr* const nowhere = nullptr;
      all.push_back(driver_call("cuMemAlloc_v2", &address, std::size_t{0}));
      all.push_back(driver_call("cuMemAlloc_v2", nowhere, mib));
      all.push_back(driver_call("cuMemAlloc_v2", &address, std::size_t{1} << 50));
      address = take(mib);
      all.push_back(give(address + 256));
      all.push_back(give(address));
      all.push_back(give(address));
      all.push_back(give(theirs));
      all.push_back(give(0));
    });
    EXPECT_EQ(tenant.strikes(), 3U) << to_string(source);
  }
  EXPECT_EQ(answers[1], answers[0]);
}

TEST_P(StoredMemoryTest, RowsGetTheDriversPitch) {
  std::vector<std::size_t> pitches[2];
  for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
    const bool is_pooled = source == MemorySource::pool;
    Tenant tenant = open_with("rows", source);
    tenant.run(0, [&] {
      for (const std::size_t width : {1, 31, 32, 511, 512, 513, 1000, 4096, 100'001}) {
        for (const unsigned element : {4U, 8U, 16U}) {
          CUdeviceptr address = 0;
          std::size_t pitch = 0;
          EXPECT_EQ(
              driver_call("cuMemAllocPitch_v2", &address, &pitch, width, std::size_t{10}, element),
              CUDA_SUCCESS);
          EXPECT_EQ(is_of_a_pool(address), is_pooled);
          CUdeviceptr base = 0;
          std::size_t size = 0;
          EXPECT_EQ(driver_call("cuMemGetAddressRange_v2", &base, &size, address), CUDA_SUCCESS);
          EXPECT_GE(size, 10 * pitch);
          pitches[is_pooled ? 1 : 0].push_back(pitch);
          EXPECT_EQ(give(address), CUDA_SUCCESS);
        }
      }
    });
    EXPECT_EQ(held(tenant, "device memory").count, 0U);
  }
  EXPECT_EQ(pitches[1], pitches[0]);
}

TEST_P(StoredMemoryTest, WrongRowsAreAnsweredAsByTheDriver) {
  std::vector<CUresult> answers[2];
  for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
    Tenant tenant = open_with("wrong rows", source, 4 * mib);
    tenant.run(0, [&] {
      CUdeviceptr address = 0, *const nowhere = nullptr;
      std::size_t pitch = 0, *const no_pitch = nullptr;
      const auto ask = [&](CUdeviceptr* out, std::size_t* row, std::size_t width,
                           std::size_t height, unsigned element) {
        const CUresult status = driver_call("cuMemAllocPitch_v2", out, row, width, height, element);
        answers[source == MemorySource::pool ? 1 : 0].push_back(status);
      };
      ask(nowhere, &pitch, 64, 64, 4);
      ask(&address, no_pitch, 64, 64, 4);
      ask(&address, &pitch, 0, 64, 4);
      ask(&address, &pitch, 64, 0, 4);
      ask(&address, &pitch, 64, 64, 0);
      ask(&address, &pitch, 64, 64, 5);
      ask(&address, &pitch, 64, 64, 32);
      ask(&address, &pitch, mib, 5, 4);  // beyond the budget
      EXPECT_EQ(address, 0U);
      ask(&address, &pitch, mib, 4, 4);
      EXPECT_EQ(give(address), CUDA_SUCCESS);
    });
  }
  EXPECT_EQ(answers[1], answers[0]);
}

TEST_P(StoredMemoryTest, FirstRowsLeaveNothingBehind) {
  Tenant tenant = open_with("rows", MemorySource::pool);
  tenant.run(0, [&] {
    CUdeviceptr address = 0;
    std::size_t pitch = 0, before = 0, after = 0, total = 0;
    EXPECT_EQ(give(take(mib)), CUDA_SUCCESS);  // what the first use takes for good
    ASSERT_EQ(driver_call("cuMemGetInfo_v2", &before, &total), CUDA_SUCCESS);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(driver_call("cuMemAllocPitch_v2", &address, &pitch, std::size_t{1000},
                            std::size_t{4}, 16U),
                CUDA_SUCCESS);
      EXPECT_EQ(give(address), CUDA_SUCCESS);
    }
    ASSERT_EQ(driver_call("cuMemGetInfo_v2", &after, &total), CUDA_SUCCESS);
    EXPECT_GE(after + mib, before);
  });
}

TEST_P(StoredMemoryTest, MemoryCountsInTheBudgetUntilItIsFreed) {
  Tenant tenant = open_with("poor", MemorySource::pool, 4 * mib);
  tenant.run(0, [&] {
    CUdeviceptr more = 0;
    const CUdeviceptr address = take(3 * mib);
    EXPECT_EQ(driver_call("cuMemAlloc_v2", &more, 2 * mib), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(held(tenant, "device memory").bytes, 3 * mib);
    EXPECT_EQ(give(address), CUDA_SUCCESS);
    EXPECT_EQ(held(tenant, "device memory").bytes, 0U);
    take(4 * mib);
  });
}

TEST_P(StoredMemoryTest, FreedMemoryIsReportedAsFreeAndGoesToANeighbourThatNeedsIt) {
  Tenant tenant = open_with("keeps", MemorySource::pool);
  Tenant neighbour = open_with("needs", MemorySource::driver);
  std::size_t before = 0, after = 0, total = 0;
  tenant.run(0, [&] {
    EXPECT_EQ(give(take(mib)), CUDA_SUCCESS);  // what the first use takes for good
    ASSERT_EQ(driver_call("cuMemGetInfo_v2", &before, &total), CUDA_SUCCESS);
    const CUdeviceptr most = take(before / 4 * 3);
    EXPECT_EQ(give(most), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuMemGetInfo_v2", &after, &total), CUDA_SUCCESS);
  });
  EXPECT_GE(after + 64 * mib, before);
  EXPECT_LT(free_memory(neighbour), before / 2) << "the tenant's pool keeps it";
  EXPECT_GE(metrics_of(tenant).store_unused_bytes, before / 4 * 3);
  neighbour.run(0, [&] { EXPECT_EQ(give(take(before / 2)), CUDA_SUCCESS); });
}

TEST_P(StoredMemoryTest, MemoryIsGivenBackWhenTheTenantCloses) {
  Tenant watcher = open(broker, "watcher", LeaseKind::shared);
  for (const bool loses_its_lease : {false, true}) {
    Tenant tenant = open_with("leaks", MemorySource::pool);
    tenant.run(0, [&] { EXPECT_EQ(give(take(mib)), CUDA_SUCCESS); });
    const std::size_t before = free_memory(watcher);
    tenant.run(0, [&] { take(96 * mib); });
    EXPECT_LE(free_memory(watcher), before - 64 * mib);
    if (loses_its_lease) {
      lose_lease(tenant);
      tenant.run(0, [&] { EXPECT_EQ(give(take(mib)), CUDA_SUCCESS) << "in the next lease"; });
    }
    tenant.close();
    const auto is_back = [&] {
      broker.poll();
      return free_memory(watcher) + 32 * mib >= before;
    };
    EXPECT_TRUE(comes_true(is_back)) << loses_its_lease;
  }
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 1 x device memory")));
  EXPECT_THAT(said(), Not(Contains(HasSubstr("could not be given back"))));
}

TEST_P(StoredMemoryTest, MemoryOfALostLeaseIsFreedInTheNextOne) {
  Tenant tenant = open_with("loses", MemorySource::pool);
  const CUdeviceptr address = tenant.run(0, [&] { return take(mib); });
  lose_lease(tenant);
  tenant.run(0, [&] {
    EXPECT_EQ(driver_call("cuMemsetD8_v2", address, static_cast<unsigned char>(1), mib),
              CUDA_SUCCESS);
    EXPECT_EQ(give(address), CUDA_SUCCESS);
    EXPECT_EQ(give(take(mib)), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
  EXPECT_EQ(held(tenant, "device memory").bytes, 0U);
}

TEST_P(StoredMemoryTest, ProgramThatAsksForAnIpcHandleGetsTheDriversMemoryFromThenOn) {
  Tenant tenant = open_with("shares", MemorySource::pool);
  tenant.run(0, [&] {
    CUipcMemHandle handle{};
    EXPECT_NE(driver_call("cuIpcGetMemHandle", &handle, take(mib)), CUDA_SUCCESS);
    const CUdeviceptr next = take(mib);
    EXPECT_FALSE(is_of_a_pool(next));
    EXPECT_EQ(driver_call("cuIpcGetMemHandle", &handle, next), CUDA_SUCCESS);
  });
  EXPECT_THAT(said(), Contains(HasSubstr("\"memory\": \"driver\" in the policy")));
}

// The driver's own free waits, too, and some programs rely on that.
TEST_P(StoredMemoryTest, FreeWaitsForTheTenantsOwnWork) {
  const HungKernel slow;
  Tenant tenant = open_with("works", MemorySource::pool);
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    const CUfunction kernel = slow.load();
    slow.launch(kernel, stream, slow.open());
    ASSERT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    const CUdeviceptr used = take(mib);
    slow.launch(kernel, stream, slow.held());
    const std::jthread end([&] {
      std::this_thread::sleep_for(milliseconds(100));
      slow.let_go();
    });
    EXPECT_EQ(give(used), CUDA_SUCCESS);
    EXPECT_FALSE(slow.is_held());
  });
}

// The load waits for the neighbour's kernel, and the driver makes no event meanwhile.
TEST_P(StoredMemoryTest, FreesBesideAModuleLoadWaitForNoNeighbour) {
  HungKernel slow;
  slow.let_go_after(std::chrono::seconds(20));
  Tenant neighbour = open_with("neighbour", MemorySource::pool);
  Tenant tenant = open_with("tenant", MemorySource::pool);
  tenant.run(0, [&] { EXPECT_EQ(give(take(mib)), CUDA_SUCCESS); });
  neighbour.run(0, [&] {
    CUstream stream = nullptr;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    const CUfunction kernel = slow.load();
    slow.launch(kernel, stream, slow.open());
    ASSERT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    slow.launch(kernel, stream, slow.held());
  });
  const std::jthread load([&] {
    tenant.run(0, [] {
      CUmodule module = nullptr;
      driver_call("cuModuleLoadData", &module, static_cast<const void*>(hold_ptx));
    });
  });
  std::this_thread::sleep_for(milliseconds(200));  // the load has begun
  constexpr int more_than_spare_events = 24;
  tenant.run(0, [&] {
    for (int i = 0; i < more_than_spare_events; ++i) EXPECT_EQ(give(take(mib)), CUDA_SUCCESS);
  });
  EXPECT_TRUE(slow.is_held()) << "a free waited for the neighbour";
  slow.let_go();
  slow.stop_watching();
  EXPECT_TRUE(comes_true([&] { return metrics_of(tenant).held_bytes == 0; }));
}

// The free then waits for nothing, but the memory still waits for the work.
TEST_P(StoredMemoryTest, FreeThatGetsNoEventLosesNothing) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device can be told to fail";
  const HungKernel slow;
  Tenant tenant = open_with("works", MemorySource::pool);
  tenant.run(0, [&] {
    CUstream stream = nullptr;
    ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    EXPECT_EQ(give(take(mib)), CUDA_SUCCESS);  // so that the store has an event to use again
    const CUdeviceptr used = take(mib);
    slow.launch(slow.load(), stream, slow.held());
    const std::jthread end([&] {
      std::this_thread::sleep_for(milliseconds(100));
      slow.let_go();
    });
    const bool needs_one = GetParam() == LeaseKind::shared;  // for the busy stream
    if (needs_one) controls.fail_call("cuEventCreate", 1, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(give(used), CUDA_SUCCESS);
    if (needs_one) {
      EXPECT_EQ(controls.call_count("cuEventCreate"), 1U);
      EXPECT_EQ(controls.call_count("cuEventRecord"), 0U) << "there is no event to record";
      EXPECT_EQ(held(tenant, "device memory").count, 0U);
      EXPECT_EQ(metrics_of(tenant).held_bytes, mib) << "the memory waits";
    }
    controls.stop_counting();
  });
  EXPECT_TRUE(comes_true([&] {
    broker.poll();
    return metrics_of(tenant).held_bytes == 0;
  }));
  EXPECT_EQ(tenant.strikes(), 0U);
}

class Captured {
 public:
  Captured() {
    EXPECT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              CUDA_SUCCESS);
  }
  // Returns whether the capture was valid to its end.
  bool end() {
    CUgraph graph = nullptr;
    const CUresult status = driver_call("cuStreamEndCapture", stream, &graph);
    if (graph != nullptr) driver_call("cuGraphDestroy", graph);
    return status == CUDA_SUCCESS && graph != nullptr;
  }
  CUstream stream = nullptr;
};

TEST_P(StoredMemoryTest, FreesInsideACaptureLeaveTheCaptureValid) {
  Tenant tenant = open_with("captures", MemorySource::pool);
  tenant.run(0, [&] {
    const CUdeviceptr used = take(mib), freed = take(mib), also = take(mib);
    Captured capture;
    std::thread([&] { tenant.run(0, [&] { EXPECT_EQ(give(freed), CUDA_SUCCESS); }); }).join();
    EXPECT_EQ(give(also), CUDA_SUCCESS) << "on the thread that captures";
    EXPECT_EQ(
        driver_call("cuMemsetD8Async", used, static_cast<unsigned char>(1), mib, capture.stream),
        CUDA_SUCCESS);
    EXPECT_TRUE(capture.end());
    EXPECT_EQ(give(used), CUDA_SUCCESS);
    EXPECT_EQ(give(take(mib)), CUDA_SUCCESS);
  });
  EXPECT_EQ(held(tenant, "device memory").bytes, 0U);
  EXPECT_EQ(metrics_of(tenant).held_bytes, 0U) << "no freed memory waits any more";
}

TEST_P(StoredMemoryTest, NeighboursCaptureStaysValidWhenATenantFreesAndCloses) {
  Tenant neighbour = open_with("captures", MemorySource::driver);
  Tenant tenant = open_with("closes", MemorySource::pool);
  neighbour.run(0, [&] {
    Captured capture;
    std::thread([&] {
      tenant.run(0, [&] {
        take(mib);
        EXPECT_EQ(give(take(mib)), CUDA_SUCCESS);
      });
      tenant.close();
      broker.poll();
    }).join();
    EXPECT_TRUE(capture.end());
  });
  neighbour.run(0, [&] {
    Captured control;
    CUevent event = nullptr;
    raw.call("cuEventCreate", &event, static_cast<unsigned>(CU_EVENT_DISABLE_TIMING));
    raw.call("cuCtxRecordEvent", current(), event);
    EXPECT_FALSE(control.end()) << "the control: what a free records would end the capture";
  });
}

TEST_P(StoredMemoryTest, MemoryHoldsUpNoNeighbourInARealTimeSession) {
  for (const MemorySource source : {MemorySource::driver, MemorySource::pool}) {
    Tenant tenant = open_with("allocates", source);
    tenant.run(0, [&] { EXPECT_EQ(give(take(mib)), CUDA_SUCCESS); });
    broker.begin_realtime();
    tenant.run(0, [&] { EXPECT_EQ(give(take(mib)), CUDA_SUCCESS); });
    broker.end_realtime();
    const std::uint64_t expected = source == MemorySource::driver ? 1 : 0;
    for (const char* call : {"cuMemAlloc", "cuMemFree"}) {
      EXPECT_EQ(metrics_of(tenant).realtime[call].count, expected) << to_string(source) << call;
    }
  }
}

TEST_P(StoredMemoryTest, ManyThreadsTakeAndFree) {
  Tenant tenant = open_with("threads", MemorySource::pool);
  std::vector<std::jthread> all;
  for (int number = 0; number < 4; ++number) {
    all.emplace_back([&] {
      tenant.run(0, [&] {
        for (int i = 0; i < 100; ++i) {
          const CUdeviceptr one = take(4096), other = take(64 * 1024);
          EXPECT_EQ(
              driver_call("cuMemsetD8_v2", one, static_cast<unsigned char>(i), std::size_t{4096}),
              CUDA_SUCCESS);
          EXPECT_EQ(give(other), CUDA_SUCCESS);
          EXPECT_EQ(give(one), CUDA_SUCCESS);
        }
      });
    });
  }
  all.clear();
  EXPECT_EQ(held(tenant, "device memory").count, 0U);
}

}  // namespace
}  // namespace ctxbroker
