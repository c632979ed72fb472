// Several devices: leases name theirs, chains cross from one to the other, and what happens on one
// leaves the other alone. Skipped where the driver has one device only.
#include <cuda.h>
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <tuple>

#include "broker_fixture.hpp"
#include "child_process.hpp"
#include "raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kinds = std::tuple<LeaseKind, LeaseKind>;

class DevicesTest : public BrokerTest, public ::testing::WithParamInterface<Kinds> {
 protected:
  DevicesTest() : path(broker.driver().path), driver(path) {}
  void SetUp() override {
    if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices; the driver has one";
  }
  PluginInstance on(int device, const char* library, LeaseKind kind) {
    PluginInstance instance = broker.create(broker.load(test_plugin(library)), "affine",
                                            {Placement(device), LeaseChoice(kind), 0});
    instance.activate(test_sizes);
    return instance;
  }
  template <typename... Arguments>
  CUresult call(const char* symbol, Arguments... arguments) const {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    auto* const function = reinterpret_cast<CUresult (*)(Arguments...)>(dlsym(library, symbol));
    return function == nullptr ? CUDA_ERROR_NOT_FOUND : function(arguments...);
  }
  // A kernel that writes one word, in the current context.
  void load_store(CUfunction* kernel) const {
    static constexpr char text[] =
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        ".visible .entry store(.param .u64 to, .param .u32 word) {\n"
        "  .reg .b64 %rd<2>;\n  .reg .b32 %r<2>;\n"
        "  ld.param.u64 %rd1, [to];\n  ld.param.u32 %r1, [word];\n"
        "  st.global.u32 [%rd1], %r1;\n  ret;\n}\n";
    CUmodule module = nullptr;
    ASSERT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>(text)), CUDA_SUCCESS);
    ASSERT_EQ(call("cuModuleGetFunction", kernel, module, "store"), CUDA_SUCCESS);
  }
  void launch_store(CUfunction kernel, CUdeviceptr to, std::uint32_t word) const {
    void* arguments[] = {&to, &word};
    constexpr CUstream stream = nullptr;
    constexpr void** extra = nullptr;
    ASSERT_EQ(
        call("cuLaunchKernel", kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, &arguments[0], extra),
        CUDA_SUCCESS);
  }
  void store(CUdeviceptr to, std::uint32_t word) const {
    CUfunction kernel = nullptr;
    load_store(&kernel);
    launch_store(kernel, to, word);
  }
  // Enqueues a write to come a fifth of a second from now.
  void store_late(CUdeviceptr to) const {
    CUfunction kernel = nullptr;
    load_store(&kernel);
    const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
    ASSERT_EQ(driver.launch_host_function(nullptr, sleep, nullptr), CUDA_SUCCESS);
    launch_store(kernel, to, 7);
  }
  const std::string path;  // of the driver's library; the broker may be closed
  RawDriver driver;
};

TEST_P(DevicesTest, AChainCrossesFromDeviceToDeviceAndBack) {
  const auto [first, second] = GetParam();
  PluginInstance one = on(0, "behaviours", first), two = on(1, "behaviours_twin", second),
                 three = on(0, "behaviours", first);
  EXPECT_EQ(one.lease().device, 0);
  EXPECT_EQ(two.lease().device, 1);
  PluginInstance alone = on(0, "wishes", LeaseKind::shared);
  EXPECT_EQ(run({&one, &two, &three}, 33, 17), run({&alone, &alone, &alone}, 33, 17))
      << "the same as on one device";
  EXPECT_GT(two.metrics().device_seconds, 0);
}

TEST_P(DevicesTest, ALossOnOneDeviceLeavesTheOtherAlone) {
  const auto [first, second] = GetParam();
  PluginInstance one = on(0, "behaviours", first), two = on(1, "behaviours", second);
  EXPECT_NE(one.lease().context, two.lease().context);
  const std::uint64_t generation = two.lease().generation;
  broker.force_loss(one.lease().tenant, 0, "a test");
  EXPECT_EQ(one.lease().state, LeaseState::lost);
  EXPECT_EQ(two.lease().state, LeaseState::ready);
  run({&one, &two});
  EXPECT_EQ(two.lease().generation, generation);
}

const auto lease_kinds =
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green);

std::string kinds_name(const ::testing::TestParamInfo<Kinds>& test) {
  return std::string(to_string(std::get<0>(test.param))) + "_then_" +
         to_string(std::get<1>(test.param));
}

INSTANTIATE_TEST_SUITE_P(Kinds, DevicesTest, ::testing::Combine(lease_kinds, lease_kinds),
                         kinds_name);

// Memory by device, strikes once for all of them.
TEST_P(DevicesTest, ATenantHasARowOfTheLeaseTableForEachDevice) {
  const auto [kind, beside] = GetParam();
  Tenant tenant = broker.open_tenant("both", {LeaseChoice(kind)});
  Tenant other = broker.open_tenant("one", {LeaseChoice(beside)});
  static_cast<void>(other.allocate(512, 1));
  for (const int device : {1, 0}) {
    static_cast<void>(tenant.allocate(4096U << device, device));
    tenant.run(device, [&] { driver.push(tenant.lease(device).context); });
  }
  const auto generations = [&] {
    std::vector<std::tuple<std::string, int, std::uint64_t>> rows;
    for (const LeaseInfo& row : broker.leases()) {
      rows.emplace_back(row.tenant_name, row.device, row.generation);
    }
    return rows;
  };
  const auto expected = [&] {
    return std::vector<std::tuple<std::string, int, std::uint64_t>>{
        {"both", 0, tenant.lease(0).generation},
        {"both", 1, tenant.lease(1).generation},
        {"one", 1, other.lease(1).generation}};
  };
  const auto before = expected();
  EXPECT_EQ(generations(), before);
  EXPECT_NE(tenant.lease(0).context, tenant.lease(1).context);
  for (const TenantMetrics& metrics : broker.metrics().tenants) {
    if (metrics.id != tenant.id()) continue;
    EXPECT_EQ(metrics.strikes, 2U);
    ASSERT_EQ(metrics.leases.size(), 2U);
    for (const LeaseMetrics& lease : metrics.leases) {
      EXPECT_EQ(lease.memory_bytes, 4096U << lease.device) << lease.device;
      EXPECT_EQ(lease.generation, tenant.lease(lease.device).generation);
    }
  }
  ASSERT_TRUE(broker.force_loss(tenant.id(), 1, "a test"));
  { const Guard next(tenant, 1); }
  EXPECT_EQ(generations(), expected());
  EXPECT_EQ(std::get<2>(generations()[0]), std::get<2>(before[0])) << "no loss of the other's";
  EXPECT_GT(std::get<2>(generations()[1]), std::get<2>(before[1]));
  tenant.close();
  EXPECT_EQ(generations(), (std::vector{before[2]}));
}

TEST_P(DevicesTest, PeerAccessIsEnabledOrRefusedWithTheReason) {
  const auto [first, second] = GetParam();
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)});
  static_cast<void>(second);
  if (!driver.can_access_peer(0, 1)) {
    EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { tenant.enable_peer_access(0, 1); }),
                HasSubstr("cannot use memory of device 1"));
    return;
  }
  const std::uint64_t there = tenant.allocate(4096, 1);
  tenant.enable_peer_access(0, 1);
  tenant.enable_peer_access(0, 1);  // twice is no error
  EXPECT_EQ(tenant.run(0, [&] { return driver.fill(there, 7, 4096); }), CUDA_SUCCESS);
  EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { tenant.enable_peer_access(0, 0); }),
              HasSubstr("device 0"));
}

// A write of one device that comes after the other one's memory is free would be a fault, and end
// CUDA for everybody in the process.
TEST_P(DevicesTest, MemoryIsGivenBackWhenTheOtherDeviceHasDoneWithIt) {
  const auto [first, second] = GetParam();
  if (!driver.can_access_peer(0, 1)) GTEST_SKIP() << "the devices cannot reach each other";
  for (const bool closes : {false, true}) {
    Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)}),
           other = broker.open_tenant("o", {LeaseChoice(second)});
    const CUdeviceptr there = tenant.allocate(4096, 1);
    tenant.enable_peer_access(0, 1);
    tenant.run(0, [&] { store_late(there); });
    closes ? tenant.close() : tenant.release(there);
    for (const int device : {0, 1}) {
      EXPECT_EQ(other.run(device, [&] { return driver.synchronize(); }), CUDA_SUCCESS) << closes;
    }
  }
}

// The control: the same by the driver's own call.
TEST_P(DevicesTest, DISABLED_MemoryThatIsFreedUnderAWriteEndsCuda) {
  const auto [first, second] = GetParam();
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)}),
         other = broker.open_tenant("o", {LeaseChoice(second)});
  other.lease(1);
  const CUdeviceptr there = tenant.allocate(4096, 1);
  tenant.enable_peer_access(0, 1);
  tenant.run(0, [&] { store_late(there); });
  EXPECT_EQ(tenant.run(1, [&] { return call("cuMemFree_v2", there); }), CUDA_SUCCESS);
  EXPECT_NE(tenant.run(0, [&] { return driver.synchronize(); }), CUDA_SUCCESS);
  EXPECT_NE(other.run(1, [&] { return driver.synchronize(); }), CUDA_SUCCESS) << "for all";
}

TEST_P(DevicesTest, WithoutTheWaitItIsAFault) {
  if (!driver.can_access_peer(0, 1)) GTEST_SKIP() << "the devices cannot reach each other";
  const std::string kinds =
      ::testing::UnitTest::GetInstance()->current_test_info()->name();  // with a slash before
  const ChildResult child =
      run_child("Kinds/DevicesTest.DISABLED_MemoryThatIsFreedUnderAWriteEndsCuda" +
                kinds.substr(kinds.find('/')));
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

// What a plug-in of the driver API does, whose context is not the primary: it asks the driver whose
// memory it was handed, and reaches across by that.
TEST_P(DevicesTest, ByTheDriverApiOneLeasesKernelsReachTheOthersMemory) {
  const auto [first, second] = GetParam();
  if (!driver.can_access_peer(0, 1)) GTEST_SKIP() << "the devices cannot reach each other";
  Tenant here = broker.open_tenant("here", {LeaseChoice(first)}),
         there = broker.open_tenant("there", {LeaseChoice(second)});
  constexpr std::uint32_t bytes = 4096, value = 0x01020304;
  const CUdeviceptr ours = here.allocate(bytes, 0), theirs = there.allocate(bytes, 1);
  // Neither a fill nor a copy between devices waits for its end.
  there.run(1, [&] {
    ASSERT_EQ(driver.fill(theirs, 7, bytes), CUDA_SUCCESS);
    ASSERT_EQ(driver.synchronize(), CUDA_SUCCESS);
  });
  CUcontext owner = nullptr, own = nullptr;
  int ordinal = -1;
  here.run(0, [&] {
    ASSERT_EQ(call("cuPointerGetAttribute", &owner, CU_POINTER_ATTRIBUTE_CONTEXT, theirs),
              CUDA_SUCCESS);
    ASSERT_EQ(call("cuPointerGetAttribute", &own, CU_POINTER_ATTRIBUTE_CONTEXT, ours),
              CUDA_SUCCESS);
    ASSERT_EQ(call("cuPointerGetAttribute", &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, theirs),
              CUDA_SUCCESS);
    EXPECT_EQ(ordinal, 1);
    ASSERT_EQ(call("cuCtxDisablePeerAccess", owner), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    ASSERT_EQ(call("cuCtxEnablePeerAccess", owner, 0u), CUDA_SUCCESS);
    EXPECT_EQ(call("cuCtxEnablePeerAccess", owner, 0u), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    store(theirs + 4, value);
    EXPECT_EQ(driver.synchronize(), CUDA_SUCCESS);
    EXPECT_EQ(call("cuMemcpyPeer", ours, own, theirs, owner, std::size_t{bytes}), CUDA_SUCCESS);
    EXPECT_EQ(driver.synchronize(), CUDA_SUCCESS);
    EXPECT_EQ(call("cuCtxDisablePeerAccess", owner), CUDA_SUCCESS);
  });
  const std::uint32_t expected[] = {0x07070707, value, 0x07070707};
  for (const auto& [tenant, device, from] : {std::tuple{&there, 1, theirs}, {&here, 0, ours}}) {
    std::uint32_t words[3] = {};
    auto* const into = static_cast<void*>(words);
    ASSERT_EQ(
        tenant->run(device,
                    [&, from = from] { return call("cuMemcpyDtoH_v2", into, from, sizeof words); }),
        CUDA_SUCCESS);
    EXPECT_THAT(words, ::testing::ElementsAreArray(expected)) << "device " << device;
  }
}

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
    apart = driver.make_context();
    void* flag = nullptr;
    constexpr unsigned portable_and_mapped = 3;
    ASSERT_EQ(call("cuMemHostAlloc", &flag, 3 * sizeof *flags, portable_and_mapped), CUDA_SUCCESS);
    driver.pop();
    flags = static_cast<std::uint32_t*>(flag);
    flags[0] = 0;
    flags[1] = 1;
    flags[2] = 0;
  }
  void TearDown() override {
    let_go();
    let_neighbour_go();
  }
  void let_go() {
    if (flags != nullptr) std::atomic_ref(flags[0]).store(1);
  }
  void let_neighbour_go() {
    if (flags != nullptr) std::atomic_ref(flags[2]).store(1);
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
      CUmodule module = nullptr;
      ASSERT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>(text)), CUDA_SUCCESS);
      ASSERT_EQ(call("cuModuleGetFunction", &held.kernel, module, "hold"), CUDA_SUCCESS);
    });
    // A driver may load code at its first launch, and wait for what runs.
    launch(held, flags + 1, word_before);
    EXPECT_EQ(end_of(held), CUDA_SUCCESS);
    return held;
  }
  void begin(const Held& held) { launch(held, flags, word_after); }
  void launch(const Held& held, std::uint32_t* flag, std::uint32_t word) const {
    auto at = reinterpret_cast<CUdeviceptr>(flag), to = held.there;
    void* arguments[] = {&at, &to, &word};
    constexpr void** extra = nullptr;
    const Entered entered(driver, held.context);
    ASSERT_EQ(call("cuLaunchKernel", held.kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, held.stream,
                   &arguments[0], extra),
              CUDA_SUCCESS);
  }
  // How the work ended, once it was let go.
  CUresult end_of(const Held& held) const {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    CUresult status = CUDA_ERROR_NOT_READY;
    while (status == CUDA_ERROR_NOT_READY && std::chrono::steady_clock::now() < latest) {
      driver.push(held.context);
      status = call("cuStreamQuery", held.stream);
      driver.pop_if_any();
    }
    return status;
  }
  CUresult synchronize_apart() const {
    const Entered entered(driver, apart);
    return driver.synchronize();
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
    EXPECT_EQ(synchronize_apart(), CUDA_SUCCESS);
  }
  static constexpr std::uint32_t word_before = 5, word_after = 7;
  CUcontext apart = nullptr;  // on device 0, and nobody's
  // The first one lets go, the second is never in the way, the third is a neighbour's.
  std::uint32_t* flags = nullptr;
};

TEST_P(HungWorkTest, DISABLED_CloseKeepsWhatItMayWriteTo) {
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
  let_go();
  expect_given_back();
  for (const int device : {0, 1}) {
    EXPECT_EQ(other.run(device, [&] { return driver.synchronize(); }), CUDA_SUCCESS);
  }
  EXPECT_EQ(other.lease(1).state, LeaseState::ready);
}

// By the driver's function, through the gate.
TEST_P(HungWorkTest, DISABLED_CloseKeepsWhatItsOwnCodeTook) {
  const auto [first, second] = GetParam();
  static_cast<void>(second);
  ASSERT_EQ(broker.gate().mode, GateMode::before_driver);
  void* const gate = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  auto* const allocate =
      reinterpret_cast<CUresult (*)(CUdeviceptr*, std::size_t)>(dlsym(gate, "cuMemAlloc_v2"));
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)});
  Held held = prepare(tenant);
  ASSERT_EQ(tenant.run(1, [&] { return allocate(&held.there, 4096); }), CUDA_SUCCESS);
  begin(held);
  tenant.close();
  EXPECT_THAT(said("ledger"), Contains(AllOf(HasSubstr("put off until work that hangs ends"),
                                             HasSubstr("1 x device memory"))))
      << "the gate knew of it";
  let_go();
  expect_given_back();
}

TEST_P(HungWorkTest, DISABLED_TheBrokersCloseKeepsItToo) {
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
    let_go();
  });
  broker.close();
  later.join();
  EXPECT_EQ(synchronize_apart(), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // what was put off is done
  EXPECT_EQ(synchronize_apart(), CUDA_SUCCESS);
}

// Nobody can wait for work on a device where a neighbour's does not end.
TEST_P(HungWorkTest, DISABLED_WhatIsReleasedBehindANeighboursStaysToo) {
  const auto [first, second] = GetParam();
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)}),
         guilty = broker.open_tenant("g", {LeaseChoice(second)});
  const Held hung = prepare(guilty), held = prepare(tenant);
  const CUdeviceptr more = tenant.allocate(4096, 1);
  launch(hung, flags + 2, word_after);
  begin(held);
  guilty.close();
  const std::uint64_t bytes = tenant.memory_bytes();
  tenant.release(held.there);
  EXPECT_EQ(tenant.memory_bytes(), bytes) << "it stays charged";
  EXPECT_THAT(said("ledger"), Contains(HasSubstr("1 x device memory (4096 bytes)")));
  EXPECT_THAT(error_text(ErrorKind::invalid_argument, [&] { tenant.release(held.there); }),
              HasSubstr("is not held by peers"));
  tenant.release(more);
  let_neighbour_go();
  EXPECT_EQ(end_of(hung), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(tenant.memory_bytes(), bytes) << "its own work may still write to it";
  let_go();
  EXPECT_EQ(end_of(held), CUDA_SUCCESS);
  expect_given_back();
  EXPECT_EQ(tenant.memory_bytes(), 0U);
}

// The control: the memory is freed by the driver's own call.
TEST_P(HungWorkTest, DISABLED_FreedUnderItMemoryEndsCuda) {
  const auto [first, second] = GetParam();
  Tenant tenant = broker.open_tenant("peers", {LeaseChoice(first)}),
         other = broker.open_tenant("o", {LeaseChoice(second)});
  other.lease(1);
  const Held held = prepare(tenant);
  begin(held);
  EXPECT_EQ(tenant.run(1, [&] { return call("cuMemFree_v2", held.there); }), CUDA_SUCCESS);
  let_go();
  EXPECT_NE(end_of(held), CUDA_SUCCESS);
  EXPECT_NE(synchronize_apart(), CUDA_SUCCESS) << "for all";
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

TEST_P(HungWorkInAChildTest, MemoryStaysThatItMayWriteTo) {
  const auto [first, second] = GetParam();
  if (!driver.can_access_peer(0, 1)) GTEST_SKIP() << "the devices cannot reach each other";
  pass("CloseKeepsWhatItMayWriteTo");
  if (first == second) {
    pass("TheBrokersCloseKeepsItToo");
    pass("CloseKeepsWhatItsOwnCodeTook", {{"CTXB_TEST_GATE", "1"}});
  }
  // Work in a private lease makes no other lease's wait.
  if (first != LeaseKind::private_own && second != LeaseKind::private_own) {
    pass("WhatIsReleasedBehindANeighboursStaysToo");
  }
}

TEST_P(HungWorkInAChildTest, FreedUnderItMemoryEndsCuda) {
  if (!driver.can_access_peer(0, 1)) GTEST_SKIP() << "the devices cannot reach each other";
  pass("FreedUnderItMemoryEndsCuda");
}

INSTANTIATE_TEST_SUITE_P(Kinds, HungWorkInAChildTest, ::testing::Combine(lease_kinds, lease_kinds),
                         kinds_name);

class TwoDevicesTest : public DevicesTest {};

TEST_P(TwoDevicesTest, AResetOfAnUnusedDeviceIsNobodysLossAndADeviceInUseIsShielded) {
  PluginInstance one = on(0, "behaviours", LeaseKind::green);
  EXPECT_FALSE(driver.primary_is_active(1)) << "not in use, not touched";
  driver.retain_primary(1);
  EXPECT_EQ(driver.on_device("cuDevicePrimaryCtxReset_v2", 1), CUDA_SUCCESS);
  EXPECT_FALSE(driver.primary_is_active(1)) << "no shield on a device that the broker does not use";
  driver.on_device("cuDevicePrimaryCtxRelease_v2", 1);
  EXPECT_NE(driver.on_device("cuDevicePrimaryCtxReset_v2", 0), CUDA_SUCCESS);
  EXPECT_EQ(run({&one})[3], 3.0F);
}

INSTANTIATE_TEST_SUITE_P(One, TwoDevicesTest,
                         ::testing::Values(Kinds{LeaseKind::green, LeaseKind::green}));

}  // namespace
}  // namespace ctxbroker
