// SPDX-License-Identifier: Apache-2.0
// Endless work in one green tenant. Every green neighbour allocates, copies, computes and frees
// meanwhile. With memory from pools, the neighbours hold no more at the end than at the beginning.
// The control has the driver's memory: frees are put off until the endless work ends, so what is
// held grows. CTXBROKER_TEST_ENDLESS_SECONDS says how long the work of the first test lasts. The
// default is 3 s on the software device, and a minute on a GPU.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "rules_fixture.hpp"
#include "support/child_process.hpp"
#include "support/hung_kernel.hpp"
#include "support/kernels.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

std::chrono::seconds endless_seconds() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it
  const char* const chosen = std::getenv("CTXBROKER_TEST_ENDLESS_SECONDS");
  if (chosen != nullptr) return std::chrono::seconds(std::max(1, std::atoi(chosen)));
  return std::chrono::seconds(driver_is_software() ? 3 : 60);
}

// A green tenant that works in rounds. Its first rounds come before the endless work, because the
// driver loads no code beside it.
class GreenNeighbour {
 public:
  static constexpr std::size_t words = 4096;  // of each allocation, which it computes and checks
  static constexpr std::size_t sizes[] = {words * 4, 100'000, mib, 4 * mib};
  // The device memory that a round takes and frees through the gate.
  static constexpr std::uint64_t bytes_of_a_round = 2 * (words * 4 + 100'000 + 5 * mib);
  static constexpr std::size_t pinned_bytes = 64 << 10;

  GreenNeighbour(Broker& broker, const std::string& name, const TenantOptions& options)
      : tenant_(broker.open_tenant(name, options)) {
    tenant_.run(0, [&] {
      CUmodule module = nullptr;
      check_driver_call("cuModuleLoadData", &module, static_cast<const void*>(fill_ptx));
      check_driver_call("cuModuleGetFunction", &fill_, module, "fill");
      check_driver_call("cuStreamCreate", &stream_, 1U);
      pinned_ = take_pinned();
    });
  }

  Tenant& tenant() { return tenant_; }
  void* pinned() const { return pinned_; }
  std::uint64_t rounds() const { return rounds_; }
  const std::string& failure() const { return failure_; }

  // From now on, a round also takes and frees pinned memory.
  void take_pinned_memory_too() { takes_pinned_ = true; }

  // Works until `over`, but at least so many rounds. Keeps the error that ends it early.
  void work(const std::atomic<bool>& over, std::uint64_t least) noexcept {
    const std::uint64_t enough = rounds_ + least;
    try {
      while (!over.load() || rounds_ < enough) round();
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }

  // The control: takes and frees the device memory of so many rounds, and does nothing else.
  void take_and_free(std::uint64_t rounds) noexcept {
    try {
      tenant_.run(0, [&] {
        for (std::uint64_t end = rounds_ + rounds; rounds_ < end; ++rounds_) {
          for (const std::size_t bytes : sizes) {
            for (int i = 0; i < 2; ++i) free(take(bytes));
          }
        }
      });
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }

  static void* take_pinned() {
    void* memory = nullptr;
    check_driver_call("cuMemHostAlloc", &memory, pinned_bytes, 0U);
    return memory;
  }
  static void free_pinned(void* memory) { check_driver_call("cuMemFreeHost", memory); }

 private:
  static CUdeviceptr take(std::size_t bytes) {
    CUdeviceptr address = 0;
    check_driver_call("cuMemAlloc_v2", &address, bytes);
    return address;
  }
  static void free(CUdeviceptr address) { check_driver_call("cuMemFree_v2", address); }

  void round() {
    tenant_.run(0, [&] {
      void* const pinned = takes_pinned_ ? take_pinned() : pinned_;
      for (const std::size_t bytes : sizes) compute(bytes, static_cast<std::uint32_t*>(pinned));
      if (takes_pinned_) free_pinned(pinned);
    });
    tenant_.release(tenant_.allocate(mib));
    ++rounds_;
  }
  // Fills a buffer, copies it on the device and to the host, and looks at what comes. The first
  // buffer is freed while the copies may still run.
  void compute(std::size_t bytes, std::uint32_t* to) {
    const auto value = static_cast<std::uint32_t>(rounds_ + bytes);
    const CUdeviceptr filled = take(bytes), copy = take(bytes);
    fill(filled, value);
    constexpr std::size_t checked = words * sizeof *to;
    to[0] = to[words - 1] = 0;
    check_driver_call("cuMemcpyDtoDAsync_v2", copy, filled, checked, stream_);
    free(filled);
    check_driver_call("cuMemcpyDtoHAsync_v2", static_cast<void*>(to), copy, checked, stream_);
    check_driver_call("cuStreamSynchronize", stream_);
    free(copy);
    if (to[0] != value || to[words - 1] != value) throw std::runtime_error("wrong values came");
  }
  void fill(CUdeviceptr address, std::uint32_t value) const {
    auto count = static_cast<std::uint32_t>(words);
    void* arguments[] = {&address, &value, &count};
    constexpr void** extra = nullptr;
    check_driver_call("cuLaunchKernel", fill_, static_cast<unsigned>(words / 256), 1U, 1U, 256U, 1U,
                      1U, 0U, stream_, &arguments[0], extra);
  }

  Tenant tenant_;
  CUfunction fill_ = nullptr;
  CUstream stream_ = nullptr;
  void* pinned_ = nullptr;  // kept
  bool takes_pinned_ = false;
  std::uint64_t rounds_ = 0;
  std::string failure_;
};

class GreenNeighboursOfEndlessWork : public ::testing::TestWithParam<MemorySource> {
 protected:
  GreenNeighboursOfEndlessWork()
      : broker(Broker::open(options())),
        raw(broker.driver().path),
        guilty(broker.open_tenant("guilty", tenant_options({LeaseKind::green, 8}))) {}
  static BrokerOptions options() {
    BrokerOptions impatient;
    impatient.end_timeout = std::chrono::milliseconds(300);
    return impatient;
  }
  static TenantOptions tenant_options(const LeaseChoice& lease) {
    TenantOptions options{lease};
    options.memory = GetParam();
    return options;
  }
  void SetUp() override {
    int pools = 0;
    raw.call("cuDeviceGetAttribute", &pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0);
    if (pools == 0) GTEST_SKIP() << "the device has no memory pools";
    neighbours.emplace_back(broker, "first", tenant_options(LeaseChoice(LeaseKind::green)));
    neighbours.emplace_back(broker, "second", tenant_options(LeaseChoice(LeaseKind::green)));
    neighbours.emplace_back(broker, "partition", tenant_options({LeaseKind::green, 8}));
    stream = guilty.create_stream();
    guilty.run(0, [&] {
      kernel = hung.load();
      hung.launch(kernel, stream, hung.open());
      ASSERT_EQ(raw.call("cuStreamSynchronize", stream), CUDA_SUCCESS);
    });
    if (is_pinned_stored()) {
      for (GreenNeighbour& one : neighbours) one.take_pinned_memory_too();
    }
    const std::atomic<bool> over{true};
    for (GreenNeighbour& one : neighbours) one.work(over, 3);  // what is loaded lazily is loaded
  }
  static bool is_pooled() { return GetParam() == MemorySource::pool; }
  // Tells whether the tenants' pinned memory comes from a store. Such memory belongs to no context,
  // but the driver's own pinned memory does.
  bool is_pinned_stored() const {
    CUcontext context = nullptr;
    return raw.call("cuPointerGetAttribute", static_cast<void*>(&context),
                    CU_POINTER_ATTRIBUTE_CONTEXT,
                    reinterpret_cast<CUdeviceptr>(neighbours.front().pinned())) == CUDA_SUCCESS &&
           context == nullptr;
  }
  void begin_endless_work(std::chrono::seconds limit) {
    hung.let_go_after(limit);
    guilty.run(0, [&] { hung.launch(kernel, stream, hung.held()); });
  }
  TenantMetrics metrics_of(GreenNeighbour& neighbour) const {
    for (TenantMetrics& one : broker.metrics().tenants) {
      if (one.id == neighbour.tenant().id()) return one;
    }
    return {};
  }
  PutOffMetrics put_off(const std::string& tenant, const std::string& what) const {
    PutOffMetrics sum;
    for (const PutOffMetrics& one : broker.metrics().put_off) {
      if (one.tenant_name != tenant || one.what != what) continue;
      sum.count += one.count;
      sum.bytes += one.bytes;
    }
    return sum;
  }
  void expect_that_all_is_freed_later() {
    hung.let_go();
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!broker.metrics().put_off.empty() && std::chrono::steady_clock::now() < latest) {
      broker.poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(broker.metrics().put_off.empty());
    for (GreenNeighbour& one : neighbours) {
      EXPECT_EQ(metrics_of(one).held["device memory"].count, 0U);
      one.tenant().close();
    }
    guilty.close();
  }

  Broker broker;
  const RawDriver raw;  // past the gate
  HungKernel hung;
  Tenant guilty;
  CUstream stream = nullptr;
  CUfunction kernel = nullptr;
  std::deque<GreenNeighbour> neighbours;
};

TEST_P(GreenNeighboursOfEndlessWork, DISABLED_HoldNoMoreThanBefore) {
  constexpr std::uint64_t slack = 64 * mib;  // of all free memory, which other programs use too
  const std::uint64_t least = is_pooled() ? 50 : 10;
  const std::chrono::seconds time = is_pooled() ? endless_seconds() : std::chrono::seconds(0);
  std::vector<TenantMetrics> before;
  for (GreenNeighbour& one : neighbours) before.push_back(metrics_of(one));
  const std::uint64_t free_before = hung.free_memory(), rounds_before = neighbours[0].rounds();
  begin_endless_work(time + std::chrono::seconds(is_pooled() ? 45 : 10));

  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (GreenNeighbour& one : neighbours) {
    threads.emplace_back([&] { is_pooled() ? one.work(over, least) : one.take_and_free(least); });
  }
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    broker.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  over.store(true);
  for (std::thread& one : threads) one.join();

  const bool waited = !hung.is_held();
  if (is_pooled()) {
    EXPECT_FALSE(waited) << "a call waited until the endless work was let go";
  }
  const std::uint64_t free_after = hung.free_memory();
  std::uint64_t moved = 0;
  for (std::size_t i = 0; i < neighbours.size(); ++i) {
    GreenNeighbour& one = neighbours[i];
    const std::string& name = one.tenant().name();
    SCOPED_TRACE(name);
    const std::uint64_t bytes = (one.rounds() - rounds_before) * GreenNeighbour::bytes_of_a_round;
    moved += bytes;
    TenantMetrics after = metrics_of(one);
    EXPECT_EQ(one.failure(), "");
    std::cout << name << ": " << one.rounds() << " rounds, held " << before[i].held_bytes
              << " bytes before and " << after.held_bytes << " after, " << after.store_unused_bytes
              << " kept unused\n";
    if (is_pooled()) {
      EXPECT_EQ(after.held_bytes, before[i].held_bytes);
      EXPECT_EQ(after.held_things, before[i].held_things);
      EXPECT_EQ(put_off(name, "device memory").bytes, 0U);
      EXPECT_LE(after.store_unused_bytes, before[i].store_unused_bytes + slack);
    } else if (!waited) {  // the damage: a call waits, as on an H200, or what is held grows
      EXPECT_GE(put_off(name, "device memory").bytes, bytes) << "the control: what is held grows";
      EXPECT_GE(after.held_bytes, before[i].held_bytes + bytes);
    }
  }
  if (is_pooled()) {
    EXPECT_GT(moved, 4 * slack) << "there is enough work to tell";
    EXPECT_GE(free_after + slack, free_before);
  } else if (!waited) {
    EXPECT_LE(free_after + moved, free_before + slack);
  }
  expect_that_all_is_freed_later();
}

TEST_P(GreenNeighboursOfEndlessWork, DISABLED_TakeAndFreePinnedMemory) {
  constexpr std::uint64_t rounds = 20;
  if (is_pooled() && !is_pinned_stored()) GTEST_SKIP() << "there is no store of pinned memory";
  GreenNeighbour& one = neighbours.front();
  const std::string& name = one.tenant().name();
  const std::uint64_t held = metrics_of(one).held["pinned host memory"].count;
  std::vector<void*> taken;
  one.tenant().run(0, [&] {
    for (std::uint64_t i = 0; i < rounds; ++i) taken.push_back(GreenNeighbour::take_pinned());
  });
  begin_endless_work(std::chrono::seconds(45));
  one.tenant().run(0, [&] {
    for (void* const memory : taken) GreenNeighbour::free_pinned(memory);
    for (std::uint64_t i = 0; i < rounds && is_pooled(); ++i) {
      GreenNeighbour::free_pinned(GreenNeighbour::take_pinned());
    }
  });
  if (is_pooled()) {
    EXPECT_EQ(put_off(name, "pinned host memory").count, 0U);
    EXPECT_EQ(metrics_of(one).held["pinned host memory"].count, held);
  } else {
    EXPECT_EQ(put_off(name, "pinned host memory").count, rounds) << "the control";
  }
  EXPECT_TRUE(hung.is_held()) << "a call waited until the endless work was let go";
  expect_that_all_is_freed_later();
}

const auto name_of_memory_source = [](const auto& one) { return to_string(one.param); };
INSTANTIATE_TEST_SUITE_P(Memory, GreenNeighboursOfEndlessWork,
                         ::testing::Values(MemorySource::pool, MemorySource::driver),
                         name_of_memory_source);

// Each in a child, because the end of a process may wait for the endless work.
class GreenNeighboursOfEndlessWorkTest : public ::testing::TestWithParam<MemorySource> {
 protected:
  static void expect_child(const std::string& test) {
    const ChildResult child = run_child("Memory/GreenNeighboursOfEndlessWork.DISABLED_" + test +
                                        "/" + to_string(GetParam()));
    EXPECT_EQ(child.exit_code, 0) << child.output;
    if (child.output.find("[  SKIPPED ] 1 test") != std::string::npos) {
      GTEST_SKIP() << child.output;
    }
    EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
    std::cout << child.output;
  }
};

TEST_P(GreenNeighboursOfEndlessWorkTest, HoldNoMoreThanBefore) {
  expect_child("HoldNoMoreThanBefore");
}
TEST_P(GreenNeighboursOfEndlessWorkTest, TakeAndFreePinnedMemory) {
  expect_child("TakeAndFreePinnedMemory");
}
INSTANTIATE_TEST_SUITE_P(Memory, GreenNeighboursOfEndlessWorkTest,
                         ::testing::Values(MemorySource::pool, MemorySource::driver),
                         name_of_memory_source);

}  // namespace
}  // namespace ctxbroker
