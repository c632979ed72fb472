// SPDX-License-Identifier: Apache-2.0
// Work on one device that does not end and then writes to memory of another: who ends a lease or
// the broker meanwhile keeps that memory.
#include <cuda.h>
#include <gmock/gmock.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "devices_fixture.hpp"
#include "support/child_process.hpp"
#include "support/hung_kernel.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Work that does not end until the test lets it go, and then writes to the other device. In a
// child: what is left of it stays until the process ends.
class HungWorkTest : public DevicesTest {
 protected:
  struct Held {
    CUdeviceptr there = 0;  // on device 1: where it writes
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUfunction kernel = nullptr;
  };

  HungWorkTest() {
    BrokerOptions impatient = options();
    impatient.end_timeout = std::chrono::milliseconds(150);
    broker = Broker::open(std::move(impatient));
  }
  void SetUp() override {
    DevicesTest::SetUp();
    if (IsSkipped()) return;
    driver.init();
    hung.emplace([this](const char* symbol) { return driver.find(symbol); });
  }
  void TearDown() override {
    if (!hung) return;
    hung->let_go();
    hung->let_go(neighbours);
  }
  // Memory of the tenant on device 1, and a kernel of its for device 0, in a stream of the
  // broker's.
  Held prepare(Tenant& tenant) {
    static constexpr char text[] =
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        ".visible .entry hold(.param .u64 flag, .param .u64 to, .param .u32 word) {\n"
        "  .reg .pred %p<2>;\n  .reg .b64 %rd<3>;\n  .reg .b32 %r<3>;\n"
        "  ld.param.u64 %rd1, [flag];\n  ld.param.u64 %rd2, [to];\n"
        "  ld.param.u32 %r1, [word];\n"
        "again:\n  ld.volatile.global.u32 %r2, [%rd1];\n"
        "  setp.eq.u32 %p1, %r2, 0;\n  @%p1 bra again;\n"
        "  st.global.u32 [%rd2], %r1;\n  ret;\n}\n";
    Held held;
    held.there = tenant.allocate(4096, 1);
    held.stream = tenant.create_stream(0);
    tenant.enable_peer_access(0, 1);
    tenant.run(0, [&] {
      held.context = driver.current();
      held.kernel = hung->load(text);
    });
    launch(held, hung->open(), word_before);
    EXPECT_EQ(end_of(held), CUDA_SUCCESS);
    return held;
  }
  void begin(const Held& held) { launch(held, hung->held(), word_after); }
  void launch(const Held& held, std::uint32_t* flag, std::uint32_t word) const {
    auto at = reinterpret_cast<CUdeviceptr>(flag), to = held.there;
    void* arguments[] = {&at, &to, &word};
    constexpr void** extra = nullptr;
    const Entered entered(driver, held.context);
    ASSERT_EQ(driver.call("cuLaunchKernel", held.kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, held.stream,
                          &arguments[0], extra),
              CUDA_SUCCESS);
  }
  // Waits for work that was let go, for up to 30 s, and returns its status.
  CUresult end_of(const Held& held) const {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    CUresult status = CUDA_ERROR_NOT_READY;
    while (status == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < latest) {
      driver.push(held.context);
      status = driver.call("cuStreamQuery", held.stream);
      driver.pop_if_any();
    }
    return status;
  }
  std::uint64_t memory_put_off() const {
    std::uint64_t count = 0;
    for (const PutOffMetrics& one : broker.metrics().put_off) {
      if (one.what == "device memory") count += one.count;
    }
    return count;
  }
  // The work has written to memory that was still there, and then that is given back.
  void expect_given_back() const {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!broker.metrics().put_off.empty() && std::chrono::steady_clock::now() < latest) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(broker.metrics().put_off.empty());
    EXPECT_EQ(hung->synchronize(), CUDA_SUCCESS);
  }
  static constexpr std::uint32_t word_before = 5, word_after = 7;
  static constexpr unsigned neighbours = 1;  // flag
  std::optional<HungKernel> hung;
};

TEST_P(HungWorkTest, DISABLED_TenantCloseKeepsMemoryThatHungWorkMayWriteTo) {
  const auto [first, second] = GetParam();
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)}),
         other = broker.open_tenant("o", {LeaseChoice(second)});
  other.lease(0);
  const CUdeviceptr theirs = other.allocate(4096, 1);
  const Held held = prepare(tenant);
  begin(held);
  tenant.close();
  EXPECT_THAT(said("lease"), Contains(AllOf(HasSubstr("is hung"),
                                            HasSubstr("the tenant's memory on other devices"))));
  EXPECT_EQ(memory_put_off(), 1U) << "its memory on device 1";
  EXPECT_EQ(other.run(1, [&] { return driver.synchronize(); }), CUDA_SUCCESS);
  EXPECT_EQ(other.lease(1).state, LeaseState::ready) << "it is no device's fault";
  other.release(theirs);
  hung->let_go();
  expect_given_back();
  for (const int device : {0, 1}) {
    EXPECT_EQ(other.run(device, [&] { return driver.synchronize(); }), CUDA_SUCCESS);
  }
  EXPECT_EQ(other.lease(1).state, LeaseState::ready);
}

// By the driver's function, through the gate.
TEST_P(HungWorkTest, DISABLED_TenantCloseKeepsMemoryThatItsOwnCodeAllocated) {
  const auto [first, second] = GetParam();
  static_cast<void>(second);
  ASSERT_EQ(broker.gate().mode, GateMode::before_driver);
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)});
  Held held = prepare(tenant);
  ASSERT_EQ(
      tenant.run(1, [&] { return driver_call("cuMemAlloc_v2", &held.there, std::size_t{4096}); }),
      CUDA_SUCCESS);
  begin(held);
  tenant.close();
  EXPECT_THAT(said("ledger"), Contains(AllOf(HasSubstr("put off until work that hangs ends"),
                                             HasSubstr("1 x device memory"))))
      << "the gate knew of it";
  hung->let_go();
  expect_given_back();
}

TEST_P(HungWorkTest, DISABLED_BrokerCloseKeepsMemoryThatHungWorkMayWriteTo) {
  const auto [first, second] = GetParam();
  static_cast<void>(second);
  Held held;
  {
    Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)});
    held = prepare(tenant);
    begin(held);
  }
  // A driver may wait for the work when it ends the primary beside a private context.
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    hung->let_go();
  });
  broker.close();
  later.join();
  EXPECT_EQ(hung->synchronize(), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // what was put off is done
  EXPECT_EQ(hung->synchronize(), CUDA_SUCCESS);
}

// Nobody can wait for work on a device where a neighbour's does not end.
TEST_P(HungWorkTest, DISABLED_MemoryReleasedBehindAHungNeighbourIsKept) {
  const auto [first, second] = GetParam();
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)}),
         guilty = broker.open_tenant("g", {LeaseChoice(second)});
  const Held guiltys = prepare(guilty), held = prepare(tenant);
  const CUdeviceptr more = tenant.allocate(4096, 1);
  launch(guiltys, hung->held(neighbours), word_after);
  begin(held);
  guilty.close();
  const std::uint64_t bytes = tenant.memory_bytes();
  tenant.release(held.there);
  EXPECT_EQ(tenant.memory_bytes(), bytes) << "it stays charged";
  EXPECT_THAT(said("ledger"), Contains(HasSubstr("1 x device memory (4096 bytes)")));
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { tenant.release(held.there); }),
              HasSubstr("is not held by peers"));
  tenant.release(more);
  hung->let_go(neighbours);
  EXPECT_THAT(end_of(guiltys), AnyOf(CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE))
      << "the guilty's stream may be gone already, because its close was put off until now";
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(tenant.memory_bytes(), bytes) << "its own work may still write to it";
  hung->let_go();
  EXPECT_EQ(end_of(held), CUDA_SUCCESS);
  expect_given_back();
  EXPECT_EQ(tenant.memory_bytes(), 0U);
}

// The control: the memory is freed by the driver's own call.
TEST_P(HungWorkTest, DISABLED_MemoryFreedUnderHungWorkEndsCuda) {
  const auto [first, second] = GetParam();
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)}),
         other = broker.open_tenant("o", {LeaseChoice(second)});
  other.lease(1);
  const Held held = prepare(tenant);
  begin(held);
  EXPECT_EQ(tenant.run(1, [&] { return driver.call("cuMemFree_v2", held.there); }), CUDA_SUCCESS);
  hung->let_go();
  EXPECT_NE(end_of(held), CUDA_SUCCESS);
  EXPECT_NE(hung->synchronize(), CUDA_SUCCESS) << "for all";
  EXPECT_NE(other.run(1, [&] { return driver.synchronize(); }), CUDA_SUCCESS);
}

INSTANTIATE_TEST_SUITE_P(Kinds, HungWorkTest, ::testing::Combine(lease_kinds, lease_kinds),
                         kinds_name);

class HungWorkInAChildTest : public DevicesTest {
 protected:
  void pass(const std::string& test, Environment environment = {}) const {
    environment.emplace_back("LSAN_OPTIONS", "detect_leaks=0");
    const ChildResult child = run_child(
        "Kinds/HungWorkTest.DISABLED_" + test + "/" + kinds_name({GetParam(), 0}), environment);
    EXPECT_EQ(child.exit_code, 0) << child.output;
    EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
  }
};

TEST_P(HungWorkInAChildTest, MemoryThatHungWorkMayWriteToIsKept) {
  const auto [first, second] = GetParam();
  if (!driver.can_access_peer(0, 1)) GTEST_SKIP() << "the devices cannot reach each other";
  pass("TenantCloseKeepsMemoryThatHungWorkMayWriteTo");
  if (first == second) {
    pass("BrokerCloseKeepsMemoryThatHungWorkMayWriteTo");
    pass("TenantCloseKeepsMemoryThatItsOwnCodeAllocated", {{"CTXB_TEST_GATE", "1"}});
  }
  // Work in a private lease makes no other lease's wait.
  if (first != LeaseKind::private_own && second != LeaseKind::private_own) {
    pass("MemoryReleasedBehindAHungNeighbourIsKept");
  }
}

TEST_P(HungWorkInAChildTest, MemoryFreedUnderHungWorkEndsCuda) {
  if (!driver.can_access_peer(0, 1)) GTEST_SKIP() << "the devices cannot reach each other";
  pass("MemoryFreedUnderHungWorkEndsCuda");
}

INSTANTIATE_TEST_SUITE_P(Kinds, HungWorkInAChildTest, ::testing::Combine(lease_kinds, lease_kinds),
                         kinds_name);

}  // namespace
}  // namespace ctxbroker
