// SPDX-License-Identifier: Apache-2.0
// What tenants hold stands in one book, by whatever way they came to it, and ends in one way.
#include <gmock/gmock.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "gate/held.hpp"
#include "ledger/ledger.hpp"
#include "plugin/access.hpp"
#include "plugin/instance.hpp"
#include "recording_broker.hpp"
#include "store_support.hpp"
#include "support/driver_by_name.hpp"
#include "support/raw_driver.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using detail::Holder;
using detail::Holding;
using detail::Kind;
using detail::ledger;
using detail::Origin;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr ActivationSizes sizes{16, 16, 0, false};

class LedgerContractTest : public RecordingBrokerTest {
 protected:
  // The driver that the plug-in's own code calls.
  LedgerContractTest() {
    setenv("CTXB_TEST_DRIVER", "libcuda.so.1", 1);  // NOLINT(concurrency-mt-unsafe)
  }

  PluginInstance active(Broker& in) {
    PluginInstance made = in.create(in.load(test_library("behaviours")), "takes_both_ways", {});
    made.activate(sizes);
    return made;
  }
  static void run(Broker& in, PluginInstance& instance) {
    std::vector<float> image(16 * 16 * 4);
    Graph(in, {&instance}, sizes).process(image.data(), image.data(), {});
  }
  static Holder by_code(TenantId tenant) { return {.tenant = tenant}; }
  static Holder by_host(TenantId tenant) { return {.tenant = tenant, .origin = Origin::host_api}; }
  bool is_memory(Tenant& tenant, CUdeviceptr address) {
    unsigned type = 0;
    return tenant.run(0, [&] {
      return raw.call("cuPointerGetAttribute", static_cast<void*>(&type),
                      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    }) == CUDA_SUCCESS;
  }

  const RawDriver raw{broker.driver().path};  // past the gate
};

TEST_F(LedgerContractTest, LedgerTellsHolderBytesAndGenerationOfEachThing) {
  Tenant tenant = broker.open_tenant("effect");
  const CUdeviceptr hosts = tenant.allocate(mib);
  CUstream const hosts_stream = tenant.create_stream();
  CUdeviceptr own = 0;
  CUstream own_stream = nullptr;
  tenant.run(0, [&] {
    ASSERT_EQ(driver_call("cuMemAlloc_v2", &own, 2 * mib), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuStreamCreate", &own_stream, 1U), CUDA_SUCCESS);
  });
  const auto generation = tenant.lease().generation;
  const auto expect = [&](Kind kind, std::uint64_t handle, const Holder& holder,
                          std::uint64_t bytes) {
    const auto held = ledger().find(kind, handle);
    ASSERT_TRUE(held.has_value()) << detail::to_string(kind);
    EXPECT_EQ(held->holder, holder);
    EXPECT_EQ(held->bytes, bytes);
    EXPECT_EQ(held->generation, generation);
  };
  expect(Kind::memory, hosts, by_host(tenant.id()), mib);
  expect(Kind::stream, detail::handle_value(hosts_stream), by_host(tenant.id()), 0);
  expect(Kind::memory, own, by_code(tenant.id()), 2 * mib);
  expect(Kind::stream, detail::handle_value(own_stream), by_code(tenant.id()), 0);

  PluginInstance instance = active(broker);
  const TenantId library = instance.lease().tenant;
  const auto by_sdk = ledger().held_by(detail::Access::of(instance).holder());
  ASSERT_THAT(by_sdk, SizeIs(2)) << "the stream of its jobs, and its memory";
  EXPECT_EQ(by_sdk[0].kind, Kind::stream);
  EXPECT_EQ(by_sdk[1].holder.origin, Origin::sdk);
  EXPECT_EQ(by_sdk[1].holder.tenant, library);
  EXPECT_EQ(by_sdk[1].bytes, mib);
  EXPECT_EQ(by_sdk[1].generation, instance.lease().generation);
  const auto code = ledger().held_by(by_code(library));
  ASSERT_THAT(code, SizeIs(2)) << "its stream and its memory";
  EXPECT_EQ(code[0].kind, Kind::stream);
  EXPECT_EQ(code[1].kind, Kind::memory);
  EXPECT_EQ(code[1].bytes, 2 * mib);
}

TEST_F(LedgerContractTest, CodeThatFreesWhatTheHostAllocatedIsRefusedAndToldWhoseItIs) {
  TenantOptions options;
  options.memory = MemorySource::driver;  // memory of a pool is freed later
  Tenant tenant = broker.open_tenant("effect", options);
  const CUdeviceptr hosts = tenant.allocate(mib);
  CUstream const stream = tenant.create_stream();
  tenant.run(0, [&] {
    EXPECT_EQ(driver_call("cuMemFree_v2", hosts), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_ERROR_INVALID_HANDLE);
  });
  EXPECT_EQ(tenant.strikes(), 2u);
  EXPECT_THAT(said(), Contains(HasSubstr("is the host's, which gives it back through its Tenant")));
  EXPECT_TRUE(is_memory(tenant, hosts));
  EXPECT_EQ(tenant.memory_bytes(), mib);
  tenant.release(hosts);
  tenant.destroy_stream(stream);
  EXPECT_FALSE(is_memory(tenant, hosts));

  // Without the gate it is gone, and the host does not know.
  const CUdeviceptr unguarded = tenant.allocate(mib);
  EXPECT_EQ(tenant.run(0, [&] { return raw.call("cuMemFree_v2", unguarded); }), CUDA_SUCCESS);
  EXPECT_FALSE(is_memory(tenant, unguarded));
  EXPECT_EQ(tenant.memory_bytes(), mib);
}

TEST_F(LedgerContractTest, CodeThatFreesWhatTheSdkAllocatedIsRefusedAndToldWhoseItIs) {
  Tenant looks = broker.open_tenant("looks");
  PluginInstance instance = active(broker);
  const auto held = ledger().held_by(detail::Access::of(instance).holder());
  ASSERT_THAT(held, SizeIs(2)) << "the stream of its jobs, and its memory";
  const CUdeviceptr memory = held[1].handle;
  run(broker, instance);
  EXPECT_THAT(said(), Contains(HasSubstr("is an instance's, which releases it with the SDK's")));
  EXPECT_TRUE(is_memory(looks, memory));
  EXPECT_EQ(instance.metrics().memory_bytes, mib);

  // Past the gate it is gone before the instance's activation ends.
  EXPECT_EQ(looks.run(0, [&] { return raw.call("cuMemFree_v2", memory); }), CUDA_SUCCESS);
  EXPECT_FALSE(is_memory(looks, memory));
  EXPECT_EQ(instance.metrics().memory_bytes, mib);
}

// Each way's stream works on the other's memory until close, which waits for both.
TEST_F(LedgerContractTest, CloseGivesBackMemoryAndStreamsOfEveryWay) {
  std::size_t before = 0, after = 0, total = 0;
  Tenant looks = broker.open_tenant("looks", {LeaseChoice(LeaseKind::shared)});
  const auto measure = [&](std::size_t* free) {
    broker.poll();  // ends the pools of tenants that are closed
    looks.run(0, [&] { raw.call("cuMemGetInfo_v2", free, &total); });
    return *free;
  };
  const auto take_and_close = [&] {
    Tenant tenant = broker.open_tenant("effect", {LeaseChoice(LeaseKind::shared)});
    const TenantId id = tenant.id();
    const CUdeviceptr hosts = tenant.allocate(mib);
    CUstream const stream = tenant.create_stream();
    tenant.run(0, [&] {
      CUdeviceptr own = 0;
      CUstream own_stream = nullptr;
      ASSERT_EQ(driver_call("cuMemAlloc_v2", &own, 2 * mib), CUDA_SUCCESS);
      ASSERT_EQ(driver_call("cuStreamCreate", &own_stream, 1U), CUDA_SUCCESS);
      ASSERT_EQ(driver_call("cuMemsetD8Async", own, static_cast<unsigned char>(1), 2 * mib, stream),
                CUDA_SUCCESS);
      ASSERT_EQ(
          driver_call("cuMemsetD8Async", hosts, static_cast<unsigned char>(1), mib, own_stream),
          CUDA_SUCCESS);
    });
    tenant.close();
    EXPECT_THAT(
        said(),
        Contains(HasSubstr("gave back what the tenant left: 1 x stream, 1 x device memory")));
    EXPECT_THAT(ledger().held_by(by_code(id)), IsEmpty());
    EXPECT_THAT(ledger().held_by(by_host(id)), IsEmpty());
    Holder sdk;
    TenantId library;
    {
      PluginInstance instance = active(broker);
      sdk = detail::Access::of(instance).holder();
      library = sdk.tenant;
      EXPECT_THAT(ledger().held_by(sdk), SizeIs(2));
    }
    EXPECT_THAT(ledger().held_by(sdk), IsEmpty()) << "the instance's end";
    EXPECT_THAT(said(), Contains(HasSubstr("forgot 1048576 bytes of device memory")));
    EXPECT_THAT(ledger().held_by(by_code(library)),
                Not(Contains(testing::Field(&Holding::kind, Kind::memory))))
        << "the library's end";
  };
  take_and_close();  // and again, because the broker keeps a green context for the next lease
  for (int i = 0; i < 50; ++i) {
    measure(&before);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  take_and_close();
  EXPECT_TRUE(comes_true([&] { return measure(&after) >= before; })) << before - after;
}

TEST_F(LedgerContractTest, LedgerWorksWithoutTheGate) {
  BrokerOptions ungated = options();
  ungated.use_gate = false;
  Broker without = Broker::open(ungated);
  Tenant tenant = without.open_tenant("effect");
  const TenantId id = tenant.id();
  const CUdeviceptr address = tenant.allocate(mib);
  static_cast<void>(tenant.create_stream());
  EXPECT_THAT(ledger().held_by(by_host(id)), SizeIs(2));
  tenant.release(address);
  EXPECT_THROW(tenant.release(address), Error);
  EXPECT_EQ(tenant.memory_bytes(), 0u);
  tenant.close();
  EXPECT_THAT(ledger().held_by(by_host(id)), IsEmpty());
}

TEST_F(LedgerContractTest, BudgetAndPeakAreExactWithEightThreads) {
  constexpr std::ptrdiff_t thread_count = 8;
  constexpr std::uint64_t each = 4096;
  TenantOptions limited;
  limited.driver_memory_budget = thread_count * each;
  Tenant tenant = broker.open_tenant("busy", limited);
  static_cast<void>(tenant.lease());
  std::atomic<int> refused{0}, too_many{0};
  std::barrier together(thread_count);
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        const CUdeviceptr hosts = tenant.allocate(each);
        tenant.run(0, [&] {
          CUdeviceptr own = 0, more = 0;
          if (driver_call("cuMemAlloc_v2", &own, each) != CUDA_SUCCESS) ++refused;
          if (round == 0) together.arrive_and_wait();  // all hold one of each
          if (driver_call("cuMemAlloc_v2", &more, thread_count * each) == CUDA_SUCCESS) ++too_many;
          driver_call("cuMemFree_v2", own);
        });
        tenant.release(hosts);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(too_many, 0);
  EXPECT_EQ(tenant.memory_bytes(), 0u);
  for (const TenantMetrics& one : broker.metrics().tenants) {
    if (!(one.id == tenant.id())) continue;
    EXPECT_EQ(one.held_bytes, 0u);
    ASSERT_THAT(one.leases, SizeIs(1));
    EXPECT_EQ(one.leases[0].memory_bytes, 0u);
    EXPECT_EQ(one.leases[0].memory_peak_bytes, thread_count * each);
    EXPECT_EQ(one.leases[0].allocations, 0u);
  }
}

}  // namespace
}  // namespace ctxbroker
