// SPDX-License-Identifier: Apache-2.0
// How things start: whether the driver or the broker came first, and which driver it was. Each case
// is a process of its own.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "attacks/attacks.h"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/gate.hpp"
#include "gate/library/gate.h"
#include "kept_addresses.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

extern "C" __attribute__((visibility("default"))) void ctxb_test_marker() {}

namespace {
std::atomic<bool> in_constructor{false};
std::atomic<pid_t> first_caller{0};  // set just before the call
void (*meanwhile)() = nullptr;       // what the constructor does while the call waits

// Also while it waits for the loader.
bool is_asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  return text.find(") S ") != std::string::npos;
}
}  // namespace

// Called by the constructor of the library "early". Returns when the other thread waits in its
// call.
extern "C" __attribute__((visibility("default"))) void ctxb_test_in_constructor() {
  in_constructor = true;
  while (first_caller == 0 || !is_asleep(first_caller)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (meanwhile != nullptr) meanwhile();
}

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

void* gate_library() {
  return dlopen((software_device_folder().parent_path() / "ctxbroker_gate.so").c_str(),
                RTLD_NOW | RTLD_NOLOAD);
}

void* hosts_own = nullptr;  // an address that the host keeps

TEST(GateStart, DISABLED_GateAfterTheHostsDriverIsLate) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(driver, nullptr) << dlerror();
  hosts_own = dlsym(driver, "cuMemFree_v2");
  Broker broker = Broker::open();
  EXPECT_TRUE(broker.gate().in_force);
  EXPECT_EQ(broker.gate().mode, GateMode::late);
  EXPECT_THAT(broker.gate().reason, HasSubstr("loaded before the broker was opened"));
  EXPECT_THAT(broker.gate().reason, HasSubstr("does not hold calls of their constructors"));
  void* const gate = gate_library();
  ASSERT_NE(gate, nullptr);
  for (const char* mode : {"proc_address", "dlsym", "linked", "runtime_static"}) {
    SCOPED_TRACE(mode);
    const bool by_runtime = std::string(mode) == "runtime_static";
    if (by_runtime && !why_no_runtime_library().empty()) continue;
    Tenant tenant = broker.open_tenant(mode, {LeaseChoice(LeaseKind::private_own)});
    AdoptedLibrary library = tenant.adopt(test_library(std::string("attacks_") + mode));
    const auto symbol = [&](const char* name) { return library.symbol(name); };
    const auto allocate = reinterpret_cast<allocate_function*>(symbol(ALLOCATE));
    const auto on_own_thread = reinterpret_cast<allocate_function*>(symbol(ALLOCATE_ON_OWN_THREAD));
    const auto attack = reinterpret_cast<attack_function*>(symbol(ATTACK));
    const auto address = reinterpret_cast<driver_address_function*>(symbol(DRIVER_ADDRESS));
    const CUdeviceptr inside = tenant.run(0, [&] { return allocate(64); });
    const CUdeviceptr outside = on_own_thread(64);
    EXPECT_EQ(context_of(inside), tenant.lease().context);
    EXPECT_EQ(context_of(outside), tenant.lease().context);
    const AttackTarget nothing{};
    EXPECT_EQ(tenant.run(0, [&] { return attack("reset", &nothing); }), CUDA_SUCCESS);
    EXPECT_NE(tenant.run(0, [&] { return allocate(64); }), 0U);
    EXPECT_EQ(file_of(address("cuMemAlloc_v2")), file_of(dlsym(gate, "cuMemAlloc_v2")));
    const Kept kept = kept_addresses(std::string("attacks_") + mode, gate, driver);
    EXPECT_EQ(kept.past, 0U);
    if (std::string(mode) != "dlsym") {
      EXPECT_GE(kept.through, 10U);
    }
    // An address that the host looked up for the library is data of the library's own.
    auto* const looked_up_for_it = static_cast<void**>(symbol(KEPT));
    tenant.run(0, [&] { *looked_up_for_it = hosts_own; });
    tenant.run(0, [&] { EXPECT_NE(allocate(64), 0U); });
    EXPECT_EQ(*looked_up_for_it, hosts_own) << "the gate changes imports, and no other data";
  }
  {
    Tenant tenant = broker.open_tenant("late", {LeaseChoice(LeaseKind::private_own)});
    AdoptedLibrary library = tenant.adopt(test_library("attacks_late"));
    const auto on_own_thread =
        reinterpret_cast<allocate_function*>(library.symbol(ALLOCATE_ON_OWN_THREAD));
    EXPECT_EQ(context_of(on_own_thread(64)), tenant.lease().context) << "opened by it just now";
  }
  // The host's own calls that make a context current go past the gate. After a guard, the host's
  // context is current again.
  Tenant tenant = broker.open_tenant("guarded");
  CUcontext primary = nullptr;
  ASSERT_EQ(driver_call("cuDevicePrimaryCtxRetain", &primary, 0), CUDA_SUCCESS);
  for (CUcontext hosts : {CUcontext{}, primary, CUcontext{}}) {
    ASSERT_EQ(driver_call("cuCtxSetCurrent", hosts), CUDA_SUCCESS);
    tenant.run(0, [&] { EXPECT_EQ(current(), tenant.lease().context); });
    EXPECT_EQ(current(), hosts);
  }
  driver_call("cuDevicePrimaryCtxRelease_v2", 0);
  EXPECT_EQ(hosts_own, dlsym(driver, "cuMemFree_v2")) << "what the host keeps stays the driver's";
}

// The host has it, and has called CUDA through it.
TEST(GateStart, DISABLED_LateGateTakesALibraryOfTheHostAndSaysWhatItCannotHold) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(driver, nullptr) << dlerror();
  void* const hosts = dlopen(test_library("attacks_dlsym").c_str(), RTLD_NOW);
  ASSERT_NE(hosts, nullptr) << dlerror();
  void* const linked = dlopen(test_library("attacks_linked").c_str(), RTLD_NOW);
  ASSERT_NE(linked, nullptr) << dlerror();
  *static_cast<void**>(dlsym(hosts, KEPT)) = dlsym(driver, "cuMemFree_v2");
  const auto on_own_thread =
      reinterpret_cast<allocate_function*>(dlsym(linked, ALLOCATE_ON_OWN_THREAD));
  std::vector<std::string> said;
  BrokerOptions options;
  options.records = [&](const Record& record) { said.push_back(record.text); };
  Broker broker = Broker::open(std::move(options));
  ASSERT_EQ(broker.gate().mode, GateMode::late);
  Tenant tenant = broker.open_tenant("second", {LeaseChoice(LeaseKind::private_own)});
  EXPECT_NE(context_of(on_own_thread(64)), tenant.lease().context) << "the control";
  AdoptedLibrary library = tenant.adopt(test_library("attacks_dlsym"));
  EXPECT_THAT(said, Contains(HasSubstr("has kept the address of a driver function")));
  const auto address = reinterpret_cast<driver_address_function*>(library.symbol(DRIVER_ADDRESS));
  EXPECT_THAT(file_of(address("cuMemFree_v2")), HasSubstr("ctxbroker_gate.so"));
  EXPECT_EQ(*static_cast<void**>(library.symbol(KEPT)), dlsym(driver, "cuMemFree_v2"))
      << "the gate changes imports, and no other data";
  AdoptedLibrary other = tenant.adopt(test_library("attacks_linked"));
  EXPECT_THAT(said, Contains(HasSubstr("from now on it is the tenant's")));
  EXPECT_EQ(context_of(on_own_thread(64)), tenant.lease().context);
}

TEST(GateStart, DISABLED_GateBesideAnotherDriverIsNotInForce) {
  ASSERT_NE(dlopen("libcuda.so.1", RTLD_NOW), nullptr) << dlerror();
  Broker broker = Broker::open();
  EXPECT_FALSE(broker.gate().in_force);
  EXPECT_EQ(broker.gate().mode, GateMode::none);
  EXPECT_THAT(broker.gate().reason, HasSubstr("plug-ins that ask for the driver get another one"));
  Tenant tenant = broker.open_tenant("alone");
  EXPECT_EQ(tenant.lease().state, LeaseState::ready) << "guards and shield are left";
}

TEST(GateStartBesideAnother, GateIsNotInForceBesideAnotherDriver) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("ctxbroker_gate_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  // The same code in another file is another driver.
  std::filesystem::copy_file(software_device_folder() / "libcuda.so.1", folder / "libcuda.so.1");
  // The libraries that the driver needs itself lie in lib/.
  const std::string folders =
      folder.string() + ":" + software_device_folder().parent_path().parent_path().string();
  const ChildResult child =
      run_child("GateStart.DISABLED_GateBesideAnotherDriverIsNotInForce",
                {{"LD_LIBRARY_PATH", folders}, {"CTXBROKER_DRIVER", "software"}});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

// A late gate puts these functions in place of dlsym and dlvsym in a tenant's library.
TEST(GateStart, DISABLED_LateLookUpsDifferOnlyForGuardedFunctions) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  Broker broker = Broker::open();
  ASSERT_EQ(broker.gate().mode, GateMode::late);
  void* const gate = gate_library();
  ASSERT_NE(gate, nullptr);
  const auto get = reinterpret_cast<const ctxb_gate* (*)()>(dlsym(gate, "ctxb_gate_get"));
  const auto look_up = reinterpret_cast<void* (*)(void*, const char*)>(get()->watched_dlsym);
  const auto look_up_version =
      reinterpret_cast<void* (*)(void*, const char*, const char*)>(get()->watched_dlvsym);
  for (void* handle : {driver, static_cast<void*>(RTLD_DEFAULT), static_cast<void*>(RTLD_NEXT)}) {
    EXPECT_EQ(dlsym(driver, "no such function"), nullptr);  // leaves an error behind
    EXPECT_EQ(look_up(handle, "cuMemFree_v2"), dlsym(gate, "cuMemFree_v2"));
    EXPECT_EQ(dlerror(), nullptr);
    EXPECT_EQ(look_up(handle, "cuMemcpyHtoD_v2"), dlsym(driver, "cuMemcpyHtoD_v2"));
    EXPECT_EQ(look_up(handle, "malloc"), dlsym(handle, "malloc"));
    EXPECT_EQ(look_up(handle, "cuNoSuchFunction"), nullptr);
    EXPECT_NE(dlerror(), nullptr);
  }
  EXPECT_EQ(look_up(gate, "cuMemFree_v2"), dlsym(gate, "cuMemFree_v2"));
  // The caller counts: this program has a function of that name, and what comes after it has none.
  EXPECT_NE(look_up(RTLD_DEFAULT, "ctxb_test_marker"), nullptr);
  EXPECT_EQ(look_up(RTLD_NEXT, "ctxb_test_marker"), nullptr);
  for (const char* version : {"GLIBC_2.2.5", "GLIBC_2.17", "no such version"}) {
    EXPECT_EQ(look_up_version(RTLD_DEFAULT, "malloc", version),
              dlvsym(RTLD_DEFAULT, "malloc", version));
  }
}

TEST(GateStart, DISABLED_GateIsOffWhenTheHostSaysSo) {
  BrokerOptions options;
  options.use_gate = false;
  Broker broker = Broker::open(std::move(options));
  EXPECT_FALSE(broker.gate().in_force);
  EXPECT_THAT(file_of(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSetCurrent")),
              ::testing::Not(HasSubstr("ctxbroker_gate")));
}

TEST(GateStart, DISABLED_GateServesTwoBrokersAndLaterOnes) {
  for (int round = 0; round < 3; ++round) {
    Broker one = Broker::open(), two = Broker::open();
    EXPECT_TRUE(one.gate().in_force) << one.gate().reason;
    EXPECT_TRUE(two.gate().in_force) << two.gate().reason;
    Tenant a = one.open_tenant("a", {LeaseChoice(LeaseKind::green)}),
           b = two.open_tenant("b", {LeaseChoice(LeaseKind::green)});
    for (Tenant* tenant : {&a, &b}) {
      AdoptedLibrary library = tenant->adopt(test_library("attacks_proc_address"));
      auto* allocate = reinterpret_cast<allocate_function*>(library.symbol(ALLOCATE));
      EXPECT_NE(tenant->run(0, [&] { return allocate(64); }), 0U);
    }
  }
}

// The first call of one thread, while the loader runs a constructor that calls the driver too, on
// another. Whoever waits for the loader must hold nothing that the constructor waits for.
void call_beside_a_constructor(const std::function<void(CUresult (*)(unsigned))>& call) {
  void* const gate =
      dlopen((software_device_folder().parent_path() / "ctxbroker_gate.so").c_str(), RTLD_NOW);
  ASSERT_NE(gate, nullptr) << dlerror();
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(gate, "cuInit"));
  ::alarm(30);  // ends the process if the threads wait for each other
  void* library = nullptr;
  std::thread loader([&] { library = dlopen(test_library("early").c_str(), RTLD_NOW); });
  while (!in_constructor) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  first_caller = ::gettid();
  call(init);
  loader.join();
  ASSERT_NE(library, nullptr) << dlerror();
  EXPECT_EQ(*static_cast<int*>(dlsym(library, "ctxb_test_constructor_status")), CUDA_SUCCESS);
}

TEST(GateStart, DISABLED_FirstCallOfTheDriverDoesNotHoldUpAConstructor) {
  call_beside_a_constructor([](CUresult (*init)(unsigned)) { EXPECT_EQ(init(0), CUDA_SUCCESS); });
}

TEST(GateStart, DISABLED_BrokerThatOpensDoesNotHoldUpAConstructor) {
  call_beside_a_constructor([](CUresult (*)(unsigned)) {
    const Broker broker = Broker::open();
    EXPECT_TRUE(broker.gate().in_force) << broker.gate().reason;
  });
}

// Controls: what the gate, the broker and the software device must not do on such a thread.
TEST(GateStart, DISABLED_LockThatIsHeldOverTheLoaderIsOutOfAConstructorsReach) {
  static std::mutex lock;
  static bool is_free = true;
  meanwhile = [] {
    is_free = lock.try_lock();
    if (is_free) lock.unlock();
  };
  call_beside_a_constructor([](CUresult (*)(unsigned)) {
    const std::lock_guard held(lock);
    EXPECT_NE(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), nullptr) << dlerror();
  });
  EXPECT_FALSE(is_free) << "a constructor that waited for it would never return";
}

TEST(GateStart, DISABLED_ThreadLocalObjectWithADestructorWaitsForAConstructor) {
  static std::atomic<bool> is_made{false};
  static bool was_made = true;
  meanwhile = [] { was_made = is_made; };
  call_beside_a_constructor([](CUresult (*)(unsigned)) {
    struct Object {
      ~Object() { is_made = false; }
    };
    thread_local const Object object;
    is_made = true;
  });
  EXPECT_FALSE(was_made) << "a constructor that waited for this thread would never return";
  EXPECT_TRUE(is_made);
}

class GateStartTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GateStartTest, ChildTestPasses) {
  Environment environment;
  if (driver_is_software()) {
    environment.emplace_back("LD_LIBRARY_PATH", software_device_folder().string());
  }
  const ChildResult child = run_child(std::string("GateStart.DISABLED_") + GetParam(), environment);
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

INSTANTIATE_TEST_SUITE_P(Cases, GateStartTest,
                         ::testing::Values("GateAfterTheHostsDriverIsLate",
                                           "LateGateTakesALibraryOfTheHostAndSaysWhatItCannotHold",
                                           "LateLookUpsDifferOnlyForGuardedFunctions",
                                           "FirstCallOfTheDriverDoesNotHoldUpAConstructor",
                                           "BrokerThatOpensDoesNotHoldUpAConstructor",
                                           "LockThatIsHeldOverTheLoaderIsOutOfAConstructorsReach",
                                           "ThreadLocalObjectWithADestructorWaitsForAConstructor",
                                           "GateIsOffWhenTheHostSaysSo",
                                           "GateServesTwoBrokersAndLaterOnes"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace ctxbroker
