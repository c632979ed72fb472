// SPDX-License-Identifier: Apache-2.0
// The gate: code of a tenant that knows nothing of the broker lands in its tenant's lease, whatever
// thread it runs on and however it reaches the driver; what it leaves is given back.
#include "ctxbroker/gate.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <thread>

#include "attacks/attacks.h"
#include "attacks/callbacks.h"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "gate_fixture.hpp"
#include "kept_addresses.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST_F(GateTest, StandsBeforeTheDriverThatTheBrokerOpened) {
  EXPECT_TRUE(broker.gate().in_force) << broker.gate().reason;
  EXPECT_THAT(file_of(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSetCurrent")),
              HasSubstr("ctxbroker_gate.so"));
  EXPECT_THAT(broker.driver().path, ::testing::Not(HasSubstr("ctxbroker_gate")));
}

// Every public name at several versions, for both kinds of default stream: the gate gives its own
// function for exactly what the driver means, and the driver's own when that is not guarded.
TEST_F(GateTest, LookUpsGiveTheSameFunctionAsTheDriver) {
  using LookUp =
      CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  void* const gate = dlopen("libcuda.so.1", RTLD_NOW);
  void* const driver = dlopen(broker.driver().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(driver, nullptr);
  auto const through_gate = reinterpret_cast<LookUp>(dlsym(gate, "cuGetProcAddress_v2"));
  auto const directly = reinterpret_cast<LookUp>(dlsym(driver, "cuGetProcAddress_v2"));
  struct Entry {
    const char *symbol, *base, *rule;
  };
  static constexpr Entry entries[] = {
#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, rule) \
  {#symbol, #base, #rule},
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION
  };
  std::map<std::string, std::string> rules;
  for (const Entry& entry : entries) rules[entry.symbol] = entry.rule;
  std::size_t guarded = 0, other = 0;
  for (const Entry& entry : entries) {
    for (const int version : {3020, 7000, 11030, 12000, 13000}) {
      for (const cuuint64_t flags : {0, 1, 2}) {
        void *meant = nullptr, *given = nullptr;
        CUdriverProcAddressQueryResult first{}, second{};
        const CUresult status = directly(entry.base, &meant, version, flags, &first);
        EXPECT_EQ(through_gate(entry.base, &given, version, flags, &second), status);
        EXPECT_EQ(first, second);
        Dl_info info{};
        if (meant == nullptr || dladdr(meant, &info) == 0 || info.dli_sname == nullptr) continue;
        const auto rule = rules.find(info.dli_sname);
        const bool is_guarded = rule != rules.end() && rule->second != "pass";
        ++(is_guarded ? guarded : other);
        EXPECT_EQ(given, is_guarded ? dlsym(gate, info.dli_sname) : meant)
            << entry.base << " " << version << " " << flags << ": " << info.dli_sname;
      }
    }
  }
  EXPECT_GT(guarded, 500U);
  EXPECT_GT(other, 2000U);
}

struct Captured {
  const char* mode;
  LeaseKind kind;
};

class CaptureTest : public GateTest, public ::testing::WithParamInterface<Captured> {
 protected:
  CaptureTest()
      : tenant(broker.open_tenant("runtime", options_of(GetParam().kind))),
        library(
            tenant.adopt(test_library(why_not().empty() ? "attacks_" + mode() : "attacks_dlsym"))),
        allocate(symbol<allocate_function>(library, ALLOCATE)),
        allocate_on_own_thread(symbol<allocate_function>(library, ALLOCATE_ON_OWN_THREAD)),
        attack(symbol<attack_function>(library, ATTACK)) {}
  void SetUp() override {
    if (!why_not().empty()) GTEST_SKIP() << why_not();
  }
  // The runtime library is a new one for each test.
  static TenantOptions options_of(LeaseKind kind) {
    TenantOptions options{LeaseChoice(kind)};
    options.unload_at_close = true;
    return options;
  }
  static std::string mode() { return GetParam().mode; }
  static bool by_runtime() { return mode().starts_with("runtime"); }
  static std::string why_not() {
    if (mode() == "deepbind") return why_no_deep_binding();
    return by_runtime() ? why_no_runtime_library() : "";
  }
  // Returns the name of the library whose variables hold the addresses that were looked up.
  static std::string keeper() {
    if (mode() == "runtime_shared") return "libcudart.so";
    return mode() == "deepbind" ? "attacks_linked" : "attacks_" + mode();
  }
  // Memory of a shared or green lease is the primary's.
  CUcontext memory_context() {
    return context_of(tenant.run(0, [&] { return allocate(16); }));
  }

  Tenant tenant;
  AdoptedLibrary library;
  allocate_function* allocate;
  allocate_function* allocate_on_own_thread;
  attack_function* attack;
};

TEST_P(CaptureTest, AllocationOnAnOwnThreadLandsInTheTenantsLease) {
  const auto address = allocate_on_own_thread(4096);
  ASSERT_NE(address, 0U);
  EXPECT_EQ(context_of(address), memory_context());
  if (GetParam().kind == LeaseKind::private_own) {
    EXPECT_EQ(context_of(address), tenant.lease().context);
  }
  EXPECT_EQ(current(), nullptr);
}

// Nothing but its code on the stack tells whose call it is.
TEST_P(CaptureTest, UnguardedAllocationLandsInTheTenantsLease) {
  const auto address = allocate(4096);
  ASSERT_NE(address, 0U);
  EXPECT_EQ(current(), tenant.lease().context);
  EXPECT_EQ(driver_call("cuCtxSetCurrent", static_cast<CUcontext>(nullptr)), CUDA_SUCCESS);
  EXPECT_EQ(context_of(address), memory_context());
  tenant.close();
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 2 x device memory")));
  EXPECT_THAT(said(), ::testing::Not(Contains(HasSubstr("kept until the process ends"))));
}

TEST_P(CaptureTest, CodeInAGuardStaysInTheLeaseWhateverItMakesCurrent) {
  const AttackTarget nothing{};
  tenant.run(0, [&] {
    EXPECT_EQ(current(), tenant.lease().context);
    EXPECT_NE(allocate(64), 0U);
    attack("set_device", &nothing);
    EXPECT_EQ(current(), tenant.lease().context);
    attack("leave_context_pushed", &nothing);
    EXPECT_EQ(current(), tenant.lease().context) << "the primary is its own lease";
  });
  EXPECT_EQ(current(), nullptr);
}

TEST_P(CaptureTest, ResetByATenantSucceedsAndItsNextCallWorks) {
  const AttackTarget nothing{};
  for (const char* reset : {"reset", "reset_v2", "reset_by_tail_call"}) {
    if (by_runtime() && std::string(reset) != "reset") continue;
    // The start of its thread is all that tells whose call this is.
    if (!threads_start_in_their_code && std::string(reset) == "reset_by_tail_call") continue;
    EXPECT_EQ(tenant.run(0, [&] { return attack(reset, &nothing); }), CUDA_SUCCESS) << reset;
    EXPECT_NE(tenant.run(0, [&] { return allocate(64); }), 0U);
    EXPECT_NE(allocate_on_own_thread(64), 0U);
  }
  EXPECT_EQ(tenant.lease().state, LeaseState::ready);
}

TEST_P(CaptureTest, OneReleaseTooManyOfThePrimaryIsRefusedAndStruck) {
  if (by_runtime()) GTEST_SKIP() << "the runtime library has no such call";
  const AttackTarget nothing{};
  EXPECT_EQ(tenant.run(0, [&] { return attack("release", &nothing); }), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_GT(tenant.strikes(), 0U);
  EXPECT_THAT(said(), Contains(HasSubstr("released the primary context more often")));
}

TEST_P(CaptureTest, TheHostsOwnThreadIsNotTakenForTheTenants) {
  CUcontext primary = nullptr;
  ASSERT_EQ(driver_call("cuDevicePrimaryCtxRetain", &primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver_call("cuCtxSetCurrent", primary), CUDA_SUCCESS);
  EXPECT_EQ(current(), primary);
  allocate_on_own_thread(64);
  EXPECT_EQ(current(), primary);
  driver_call("cuCtxSetCurrent", static_cast<CUcontext>(nullptr));
  driver_call("cuDevicePrimaryCtxRelease_v2", 0);
}

TEST_P(CaptureTest, GuardedFunctionsHaveTheGatesAddressAndOthersTheDriversOwn) {
  const auto address = symbol<driver_address_function>(library, DRIVER_ADDRESS);
  for (const char* guarded : {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2",
                              "cuCtxSetCurrent", "cuMemAlloc_v2", "cuModuleUnload"}) {
    EXPECT_THAT(file_of(address(guarded)), HasSubstr("ctxbroker_gate.so")) << guarded;
  }
  // An unguarded function that is looked up through cuGetProcAddress is the driver's own, without
  // even a jump.
  if (mode() == "proc_address") {
    EXPECT_EQ(file_of(address("cuMemcpyHtoD_v2")), broker.driver().path);
  }
}

// Nothing of what it looked up and keeps leads past the gate.
TEST_P(CaptureTest, LibraryKeepsNoDriverAddressOfAGuardedFunction) {
  ASSERT_NE(tenant.run(0, [&] { return allocate(64); }), 0U);
  void* const gate = dlopen("libcuda.so.1", RTLD_NOW);
  void* const driver = dlopen(broker.driver().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(driver, nullptr);
  const Kept kept = kept_addresses(keeper(), gate, driver);
  EXPECT_EQ(kept.past, 0U);
  // Those that keep none ask for each anew.
  if (mode() != "dlsym") {
    EXPECT_GE(kept.through, 10U);
  }
}

TEST_P(CaptureTest, MemoryThatATenantLeavesIsGivenBackAtItsEnd) {
  std::size_t before = 0, after = 0, total = 0;
  tenant.run(0, [&] { driver_call("cuMemGetInfo_v2", &before, &total); });
  for (int i = 0; i < 4; ++i) ASSERT_NE(tenant.run(0, [&] { return allocate(64U << 20); }), 0U);
  tenant.close();
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 4 x device memory")));
  Tenant other = broker.open_tenant("other", {LeaseChoice(LeaseKind::shared)});
  other.run(0, [&] { driver_call("cuMemGetInfo_v2", &after, &total); });
  EXPECT_GT(after + (64U << 20), before);
}

TEST_P(CaptureTest, EachOfManyTenantsGivesBackItsMemory) {
  for (int i = 0; i < 20; ++i) {
    Tenant one = broker.open_tenant("again", options_of(GetParam().kind));
    AdoptedLibrary again = one.adopt(test_library("attacks_" + mode()));
    ASSERT_NE(one.run(0, [&] { return symbol<allocate_function>(again, ALLOCATE)(1U << 20); }), 0U);
    one.close();
  }
  std::size_t gone = 0;
  for (const auto& line : said()) gone += line.find("1 x device memory") != std::string::npos;
  EXPECT_EQ(gone, 20U);
}

// The runtime library may make contexts current, too, when it is unloaded.
TEST_P(CaptureTest, CloseLeavesNothingPutOff) {
  const AttackTarget nothing{};
  tenant.run(0, [&] {
    EXPECT_NE(allocate(4096), 0U);
    EXPECT_EQ(attack("set_device", &nothing), CUDA_SUCCESS);
  });
  EXPECT_NE(allocate_on_own_thread(4096), 0U);
  tenant.close();
  for (const PutOffMetrics& one : broker.metrics().put_off) {
    ADD_FAILURE() << one.count << " x " << one.what << " of " << one.tenant_name;
  }
  EXPECT_EQ(current(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, CaptureTest,
    ::testing::Values(Captured{"proc_address", LeaseKind::green},
                      Captured{"proc_address", LeaseKind::private_own},
                      Captured{"proc_address", LeaseKind::shared},
                      Captured{"dlsym", LeaseKind::green}, Captured{"linked", LeaseKind::green},
                      Captured{"deepbind", LeaseKind::private_own},
                      Captured{"runtime_static", LeaseKind::green},
                      Captured{"runtime_static", LeaseKind::private_own},
                      Captured{"runtime_static", LeaseKind::shared},
                      Captured{"runtime_shared", LeaseKind::green},
                      Captured{"runtime_shared", LeaseKind::private_own},
                      Captured{"runtime_shared", LeaseKind::shared}),
    [](const auto& one) {
      return std::string(one.param.mode) + "_" +
             (one.param.kind == LeaseKind::private_own ? "private" : to_string(one.param.kind));
    });

// Tests to which tenant a library belongs that is loaded later than its tenant's library, or by two
// tenants. Its own threads show that, because no guard covers them. If the library belongs to
// neither tenant, these threads count as the host's. Inside a guard, calls count as the guarded
// tenant's.
class UnclearCodeTest : public GateTest {
 protected:
  // Unloads its libraries, so that the next test finds them new.
  Tenant open(const char* name) {
    TenantOptions options{LeaseChoice(LeaseKind::private_own)};
    options.unload_at_close = true;
    return broker.open_tenant(name, options);
  }
  static CUcontext guarded(Tenant& tenant, const AdoptedLibrary& library) {
    auto* allocate = symbol<allocate_function>(library, ALLOCATE);
    return context_of(tenant.run(0, [&] { return allocate(64); }));
  }
  static CUcontext on_own_thread(const AdoptedLibrary& library) {
    return context_of(symbol<allocate_function>(library, ALLOCATE_ON_OWN_THREAD)(64));
  }
};

TEST_F(UnclearCodeTest, LibraryThatATenantOpensLaterIsTheTenants) {
  for (int life = 0; life < 2; ++life) {
    Tenant late = open("late");
    const AdoptedLibrary library = late.adopt(test_library("attacks_late"));
    EXPECT_EQ(guarded(late, library), late.lease().context);
    EXPECT_EQ(on_own_thread(library), late.lease().context);
  }
  Tenant unguarded = open("opens it where nobody guards");
  const AdoptedLibrary library = unguarded.adopt(test_library("attacks_late"));
  EXPECT_EQ(on_own_thread(library), unguarded.lease().context);
}

TEST_F(UnclearCodeTest, LibraryThatTwoTenantsOpenLaterIsNobodys) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("ctxb_opens_" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(test_library("attacks_late"), folder / "attacks_late.so");
  std::filesystem::create_symlink(test_library("attacks_linked"), folder / "attacks_linked.so");
  Tenant first = open("first"), second = open("second");
  const AdoptedLibrary of_first = first.adopt(test_library("attacks_late"));
  const AdoptedLibrary of_second = second.adopt(folder / "attacks_late.so");
  EXPECT_EQ(on_own_thread(of_first), first.lease().context);
  EXPECT_EQ(guarded(second, of_second), second.lease().context);
  std::filesystem::remove_all(folder);
  for (const AdoptedLibrary* one : {&of_first, &of_second}) {
    const CUcontext context = on_own_thread(*one);
    EXPECT_NE(context, nullptr);
    EXPECT_NE(context, first.lease().context);
    EXPECT_NE(context, second.lease().context);
  }
}

// A library that the host has opened stays the host's, even if a tenant opens it afterwards.
TEST_F(UnclearCodeTest, ALibraryOfTheHostsIsNotTheTenantsWhoOpensIt) {
  Tenant tenant = open("late");
  const AdoptedLibrary library = tenant.adopt(test_library("attacks_late"));
  void* const hosts = dlopen(test_library("attacks_linked").c_str(), RTLD_NOW);
  ASSERT_NE(hosts, nullptr) << dlerror();
  const auto allocate = reinterpret_cast<allocate_function*>(dlsym(hosts, ALLOCATE_ON_OWN_THREAD));
  EXPECT_NE(context_of(allocate(64)), tenant.lease().context);
  EXPECT_EQ(guarded(tenant, library), tenant.lease().context);
  EXPECT_NE(context_of(allocate(64)), tenant.lease().context);
  tenant.close();
  dlclose(hosts);
}

// By a name that the loader finds in the run path of the library that asks, and in no other's: the
// loader answers as ever, and what it opens stays nobody's.
TEST_F(UnclearCodeTest, ALibraryThatIsFoundInARunPathIsNobodys) {
  if (!why_no_deep_binding().empty()) GTEST_SKIP() << "sanitizers open libraries in their own name";
  setenv(OPENS_BY_NAME, "attacks_linked.so",
         1);  // NOLINT(concurrency-mt-unsafe): no thread reads it now
  Tenant tenant = open("late");
  const AdoptedLibrary library = tenant.adopt(test_library("attacks_late"));
  EXPECT_EQ(guarded(tenant, library), tenant.lease().context);
  EXPECT_NE(on_own_thread(library), tenant.lease().context);
  unsetenv(OPENS_BY_NAME);  // NOLINT(concurrency-mt-unsafe)
}

// A path leads past the driver's name; not for a library that the broker has loaded.
TEST_F(UnclearCodeTest, TenantThatOpensTheDriverByPathGetsTheGate) {
  const std::string path = driver_is_software()
                               ? (software_device_folder() / "libcuda.so.1").string()
                               : broker.driver().path;
  setenv(OPENS_BY_NAME, path.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): no thread reads it now
  Tenant tenant = open("by path");
  const AdoptedLibrary library = tenant.adopt(test_library("attacks_late"));
  const auto address = symbol<driver_address_function>(library, DRIVER_ADDRESS);
  EXPECT_THAT(file_of(address("cuDevicePrimaryCtxReset_v2")), HasSubstr("ctxbroker_gate.so"));
  // The control: the host gets what it asks for.
  void* const hosts = dlopen(path.c_str(), RTLD_NOW);
  ASSERT_NE(hosts, nullptr) << dlerror();
  EXPECT_THAT(file_of(dlsym(hosts, "cuDevicePrimaryCtxReset_v2")),
              ::testing::Not(HasSubstr("ctxbroker_gate.so")));
  unsetenv(OPENS_BY_NAME);  // NOLINT(concurrency-mt-unsafe)
}

// The driver behind the gate has other names too, such as the software device's.
TEST_F(UnclearCodeTest, TenantThatOpensTheDriverBehindTheGateGetsTheGate) {
  Tenant tenant = open("by its other name");
  const AdoptedLibrary library = tenant.adopt(test_library("attacks_callbacks"));
  auto* const open_library = symbol<open_function>(library, OPEN);
  const std::filesystem::path path = broker.driver().path;
  // The library has a run path, on which the answer for a bare name could depend.
  for (const std::string& name : {path.string(), path.filename().string()}) {
    SCOPED_TRACE(name);
    void* const tenants = open_library(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(tenants, nullptr);
    EXPECT_THAT(file_of(dlsym(tenants, "cuMemFree_v2")), HasSubstr("ctxbroker_gate.so"));
    if (name.starts_with("libcuda.so")) continue;  // it is the gate's name, for the host too
    // The control: the host gets what it asks for.
    void* const hosts = dlopen(name.c_str(), RTLD_NOW | RTLD_NOLOAD);
    EXPECT_THAT(file_of(dlsym(hosts, "cuMemFree_v2")),
                ::testing::Not(HasSubstr("ctxbroker_gate.so")));
  }
}

// Plug-ins try one path after the other, and say which one was missing.
TEST_F(UnclearCodeTest, PathWithTheDriversNameThatLeadsToNoFileIsNotOpened) {
  Tenant tenant = open("tries paths");
  const AdoptedLibrary library = tenant.adopt(test_library("attacks_callbacks"));
  auto* const open_library = symbol<open_function>(library, OPEN);
  const std::filesystem::path nowhere =
      std::filesystem::temp_directory_path() / ("ctxb_nowhere_" + std::to_string(getpid()));
  for (const char* name : {"libcuda.so.1", "libcuda.so"}) {
    const std::string path = (nowhere / name).string();
    EXPECT_EQ(open_library(path.c_str(), RTLD_NOW), nullptr) << path;
    const char* const why = dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
    ASSERT_NE(why, nullptr);
    EXPECT_THAT(why, HasSubstr(path + ": cannot open shared object file: No such file"));
  }
  // The control: by the name alone, and by the path of a file, it gets the gate.
  const std::string file = (software_device_folder() / "libcuda.so.1").string();
  for (const std::string& name : {std::string("libcuda.so.1"), file}) {
    if (name == file && !driver_is_software()) continue;
    void* const opened = open_library(name.c_str(), RTLD_NOW);
    ASSERT_NE(opened, nullptr) << name;
    EXPECT_THAT(file_of(dlsym(opened, "cuMemFree_v2")), HasSubstr("ctxbroker_gate.so"));
  }
}

TEST_F(UnclearCodeTest, ThreadsOfALibraryThatTwoTenantsNeedAreNobodys) {
  Tenant first = open("first"), second = open("second");
  const auto file = test_library("attacks_by_needed");
  const auto copy = std::filesystem::temp_directory_path() /
                    ("ctxb_by_needed_" + std::to_string(getpid()) + ".so");
  const AdoptedLibrary library = first.adopt(file);
  EXPECT_EQ(on_own_thread(library), first.lease().context) << "it is the first one's alone";
  std::filesystem::copy_file(file, copy, std::filesystem::copy_options::overwrite_existing);
  const AdoptedLibrary same = second.adopt(copy);
  std::filesystem::remove(copy);
  ASSERT_EQ(library.symbol(ALLOCATE), same.symbol(ALLOCATE));
  for (const AdoptedLibrary* one : {&library, &same}) {
    const CUcontext context = on_own_thread(*one);
    EXPECT_NE(context, nullptr);
    EXPECT_NE(context, first.lease().context);
    EXPECT_NE(context, second.lease().context);
  }
  EXPECT_EQ(guarded(first, library), first.lease().context);
  EXPECT_EQ(guarded(second, same), second.lease().context);
}

TEST_F(GateTest, BudgetLimitsOnlyItsOwnTenant) {
  TenantOptions small{LeaseChoice(LeaseKind::green)};
  small.driver_memory_budget = 1U << 20;
  Tenant poor = broker.open_tenant("poor", small), rich = broker.open_tenant("rich");
  std::vector<unsigned long long> got;
  for (Tenant* tenant : {&poor, &rich}) {
    AdoptedLibrary library =
        tenant->adopt(test_library(tenant == &poor ? "attacks_dlsym" : "attacks_proc_address"));
    auto* allocate = symbol<allocate_function>(library, ALLOCATE);
    tenant->run(0, [&] {
      got.push_back(allocate(1U << 19));
      got.push_back(allocate(1U << 20));  // over the poor one's
    });
  }
  EXPECT_NE(got[0], 0U);
  EXPECT_EQ(got[1], 0U);
  EXPECT_NE(got[2], 0U);
  EXPECT_NE(got[3], 0U);
  for (const TenantMetrics& metrics : broker.metrics().tenants) {
    if (metrics.name != "poor") continue;
    EXPECT_EQ(metrics.held_bytes, 1U << 19);
    EXPECT_EQ(metrics.held_things, 1U);
    EXPECT_EQ(metrics.guarded_calls.at("cuMemAlloc_v2"), 2U);
  }
}

}  // namespace
}  // namespace ctxbroker
