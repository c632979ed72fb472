// The gate: code of a tenant that knows nothing of the broker lands in its tenant's lease, whatever
// thread it runs on and however it reaches the driver; what it leaves is given back.
#include "ctxbroker/gate.hpp"

#include <gmock/gmock.h>
#include <link.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "attacks/attacks.h"
#include "child_process.hpp"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "driver_by_name.hpp"
#include "gate/library/gate.h"
#include "test_library.hpp"

extern "C" __attribute__((visibility("default"))) void ctxb_test_marker() {}

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

CUcontext current() {
  CUcontext context = nullptr;
  driver_call("cuCtxGetCurrent", &context);
  return context;
}

CUcontext context_of(CUdeviceptr address) {
  CUcontext context = nullptr;
  driver_call("cuPointerGetAttribute", static_cast<void*>(&context), CU_POINTER_ATTRIBUTE_CONTEXT,
              address);
  return context;
}

std::string file_of(void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

class GateTest : public ::testing::Test {
 protected:
  GateTest() : broker(Broker::open(options())) {}

  BrokerOptions options() {
    BrokerOptions all;
    all.records = [this](const Record& record) {
      const std::lock_guard lock(mutex_);
      said_.push_back(std::string(record.topic) + ": " + record.text);
    };
    return all;
  }
  std::vector<std::string> said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  std::uint64_t held_bytes(const std::string& tenant) {
    for (const TenantMetrics& metrics : broker.metrics().tenants)
      if (metrics.name == tenant) return metrics.held_bytes;
    return 0;
  }
  template <typename Function>
  static Function* symbol(const AdoptedLibrary& library, const char* name) {
    return reinterpret_cast<Function*>(library.symbol(name));
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> said_;

 protected:
  Broker broker;
};

TEST_F(GateTest, StandsBeforeTheDriverThatTheBrokerOpened) {
  EXPECT_TRUE(broker.gate().in_force) << broker.gate().reason;
  EXPECT_THAT(file_of(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSetCurrent")),
              HasSubstr("ctxbroker_gate.so"));
  EXPECT_THAT(broker.driver().path, ::testing::Not(HasSubstr("ctxbroker_gate")));
}

// Every public name at several versions, for both kinds of default stream: the gate gives its own
// function for exactly what the driver means, and the driver's own when that is not guarded.
TEST_F(GateTest, LookUpsMeanWhatTheDriverMeans) {
  using LookUp =
      CUresult (*)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  void* const gate = dlopen("libcuda.so.1", RTLD_NOW);
  void* const driver = dlopen(broker.driver().path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(driver, nullptr);
  auto const through_gate = reinterpret_cast<LookUp>(dlsym(gate, "cuGetProcAddress_v2"));
  auto const directly = reinterpret_cast<LookUp>(dlsym(driver, "cuGetProcAddress_v2"));
  struct Entry {
    const char *symbol, *base, *policy;
  };
  static constexpr Entry entries[] = {
#define CTXB_GATE_ENTRY(symbol, base, version, per_thread, scope, policy) {#symbol, #base, #policy},
#include "gate/gate_table.inc"
#undef CTXB_GATE_ENTRY
  };
  std::map<std::string, std::string> policies;
  for (const Entry& entry : entries) policies[entry.symbol] = entry.policy;
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
        const auto policy = policies.find(info.dli_sname);
        const bool is_guarded = policy != policies.end() && policy->second != "pass";
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
    TenantOptions options{kind};
    options.unload_at_close = true;
    return options;
  }
  static std::string mode() { return GetParam().mode; }
  static bool by_runtime() { return mode().starts_with("runtime"); }
  static std::string why_not() {
    if (mode() == "deepbind") return why_no_deep_binding();
    return by_runtime() ? why_no_runtime_library() : "";
  }
  // Whose variables hold what it looked up.
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

TEST_P(CaptureTest, OnItsOwnThreadItLandsInItsOwnLease) {
  const auto address = allocate_on_own_thread(4096);
  ASSERT_NE(address, 0U);
  EXPECT_EQ(context_of(address), memory_context());
  if (GetParam().kind == LeaseKind::private_own) {
    EXPECT_EQ(context_of(address), tenant.lease().context);
  }
  EXPECT_EQ(current(), nullptr);
}

// Nothing but its code on the stack tells whose call it is.
TEST_P(CaptureTest, CalledByTheHostWithoutAGuardItLandsInItsOwnLeaseToo) {
  const auto address = allocate(4096);
  ASSERT_NE(address, 0U);
  EXPECT_EQ(current(), tenant.lease().context);
  EXPECT_EQ(driver_call("cuCtxSetCurrent", static_cast<CUcontext>(nullptr)), CUDA_SUCCESS);
  EXPECT_EQ(context_of(address), memory_context());
  tenant.close();
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 2 x device memory")));
  EXPECT_THAT(said(), ::testing::Not(Contains(HasSubstr("kept until the process ends"))));
}

TEST_P(CaptureTest, InAGuardItStaysInTheLeaseWhateverItMakesCurrent) {
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

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool threads_start_in_their_code = false;  // but in the sanitizer's
#else
constexpr bool threads_start_in_their_code = true;
#endif

TEST_P(CaptureTest, AResetSucceedsAndTheNextCallWorks) {
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

TEST_P(CaptureTest, OneReleaseTooManyIsRefusedAndStruck) {
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
  // What is looked up through cuGetProcAddress costs not even a jump.
  if (mode() == "proc_address") {
    EXPECT_EQ(file_of(address("cuMemcpyHtoD_v2")), broker.driver().path);
  }
}

// Sanitizers have fenced off parts of a library's data.
__attribute__((no_sanitize("address", "thread"))) void* word_at(std::uintptr_t address) {
  return *reinterpret_cast<void**>(address);
}

// Every word that a library keeps in what it may write to.
std::vector<void*> kept_words(const std::string& file_name) {
  struct Search {
    std::string file_name;
    std::vector<void*> words;
  } search{file_name, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* given) {
        auto& all = *static_cast<Search*>(given);
        if (std::string(info->dlpi_name).find(all.file_name) == std::string::npos) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
          const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
          for (std::uintptr_t at = begin; at + sizeof(void*) <= begin + part.p_memsz;
               at += sizeof(void*)) {
            all.words.push_back(word_at(at));
          }
        }
        return 0;
      },
      &search);
  return search.words;
}

// How many addresses of guarded functions a library keeps: the driver's own, and the gate's.
struct Kept {
  std::size_t past = 0, through = 0;
};
Kept kept_addresses(const std::string& file_name, void* gate, void* driver) {
  std::set<void*> guarded, gates;
#define CTXB_GATE_ENTRY(symbol, base, version, per_thread, scope, policy) \
  if (std::string(#policy) != "pass") {                                   \
    guarded.insert(dlsym(driver, #symbol));                               \
    gates.insert(dlsym(gate, #symbol));                                   \
  }
#include "gate/gate_table.inc"
#undef CTXB_GATE_ENTRY
  guarded.erase(nullptr);
  gates.erase(nullptr);
  Kept kept;
  for (void* word : kept_words(file_name)) {
    kept.past += guarded.count(word);
    kept.through += gates.count(word);
  }
  return kept;
}

// Nothing of what it looked up and keeps leads past the gate.
TEST_P(CaptureTest, KeepsNoAddressOfAGuardedFunctionOfTheDriver) {
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

TEST_P(CaptureTest, WhatItLeavesIsGivenBackAtItsEnd) {
  std::size_t before = 0, after = 0, total = 0;
  tenant.run(0, [&] { driver_call("cuMemGetInfo_v2", &before, &total); });
  for (int i = 0; i < 4; ++i) ASSERT_NE(tenant.run(0, [&] { return allocate(64U << 20); }), 0U);
  tenant.close();
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 4 x device memory")));
  Tenant other = broker.open_tenant("other", {LeaseKind::shared});
  other.run(0, [&] { driver_call("cuMemGetInfo_v2", &after, &total); });
  EXPECT_GT(after + (64U << 20), before);
}

TEST_P(CaptureTest, EachLifeOfManyGivesBackWhatItHolds) {
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

// Libraries on the runtime library keep memory from one use to the next: what code that stays
// holds is its next tenant's, and is given back when the code goes.
TEST_F(GateTest, WhatCodeThatStaysHoldsIsItsNextTenants) {
  CUdeviceptr address = 0;
  const AttackTarget nothing{};
  {
    Tenant first = broker.open_tenant("first", {LeaseKind::green});
    AdoptedLibrary library = first.adopt(test_library("attacks_dlsym"));
    first.run(0, [&] {
      symbol<attack_function>(library, ATTACK)("take_private_tables", &nothing);
      address = symbol<allocate_function>(library, ALLOCATE)(1U << 20);
    });
  }
  EXPECT_THAT(said(), Contains(HasSubstr("stays with the tenant's code, which stays in the "
                                         "process: 1 x device memory")));
  TenantOptions options{LeaseKind::green};
  options.unload_at_close = true;
  Tenant second = broker.open_tenant("second", options);
  EXPECT_NE(context_of(address), nullptr) << "it is still there";
  EXPECT_EQ(held_bytes("second"), 0U);
  AdoptedLibrary library = second.adopt(test_library("attacks_dlsym"));
  EXPECT_EQ(held_bytes("second"), 1U << 20);
  second.close();
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 1 x device memory")));
  EXPECT_EQ(context_of(address), nullptr);
}

// What nobody can tell apart is the host's: threads of a library's own, that no guard covers, when
// the library came later than its tenant's, or when two tenants need it. In guards all is as ever.
class UnclearCodeTest : public GateTest {
 protected:
  // Unloads its libraries, so that the next test finds them new.
  Tenant open(const char* name) {
    TenantOptions options{LeaseKind::private_own};
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

TEST_F(UnclearCodeTest, ThreadsOfALibraryThatATenantOpensLater) {
  {
    Tenant late = open("late");
    const AdoptedLibrary library = late.adopt(test_library("attacks_late"));
    EXPECT_EQ(guarded(late, library), late.lease().context);
    EXPECT_NE(on_own_thread(library), late.lease().context);
  }
  Tenant known = open("known");
  const AdoptedLibrary inner = known.adopt(test_library("attacks_linked"));
  const AdoptedLibrary library = known.adopt(test_library("attacks_late"));
  EXPECT_EQ(guarded(known, library), known.lease().context);
  EXPECT_EQ(on_own_thread(library), known.lease().context) << "the host has adopted it before";
}

TEST_F(UnclearCodeTest, ThreadsOfALibraryThatTwoTenantsNeed) {
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

TEST_F(GateTest, ABudgetIsTheTenantsOwn) {
  TenantOptions small{LeaseKind::green};
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

// ---- how things start
// ----------------------------------------------------------------------------

void* gate_library() {
  return dlopen((software_device_folder().parent_path() / "ctxbroker/ctxbroker_gate.so").c_str(),
                RTLD_NOW | RTLD_NOLOAD);
}

void* hosts_own = nullptr;  // an address that the host keeps

TEST(GateStart, DISABLED_AfterTheHostLoadedTheDriver) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(driver, nullptr) << dlerror();
  hosts_own = dlsym(driver, "cuMemFree_v2");
  Broker broker = Broker::open();
  EXPECT_TRUE(broker.gate().in_force);
  EXPECT_EQ(broker.gate().mode, GateMode::late);
  EXPECT_THAT(broker.gate().reason, HasSubstr("loaded before the broker was opened"));
  EXPECT_THAT(broker.gate().reason, HasSubstr("Not held are"));
  void* const gate = gate_library();
  ASSERT_NE(gate, nullptr);
  for (const char* mode : {"proc_address", "dlsym", "linked", "runtime_static"}) {
    SCOPED_TRACE(mode);
    const bool by_runtime = std::string(mode) == "runtime_static";
    if (by_runtime && !why_no_runtime_library().empty()) continue;
    Tenant tenant = broker.open_tenant(mode, {LeaseKind::private_own});
    AdoptedLibrary library = tenant.adopt(test_library(std::string("attacks_") + mode));
    const auto symbol = [&](const char* name) { return library.symbol(name); };
    const auto allocate = reinterpret_cast<allocate_function*>(symbol(ALLOCATE));
    const auto on_own_thread = reinterpret_cast<allocate_function*>(symbol(ALLOCATE_ON_OWN_THREAD));
    const auto attack = reinterpret_cast<attack_function*>(symbol(ATTACK));
    const auto address = reinterpret_cast<driver_address_function*>(symbol(DRIVER_ADDRESS));
    auto* const looked_up_for_it = static_cast<void**>(symbol(KEPT));
    tenant.run(0, [&] { *looked_up_for_it = hosts_own; });
    EXPECT_EQ(*looked_up_for_it, dlsym(gate, "cuMemFree_v2")) << "found when the guard ended";
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
  }
  // What the host itself makes current goes past the gate, and is there again after a guard.
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

TEST(GateStart, DISABLED_LateALibraryThatTheHostHasIsLeftAloneAndNamed) {
  ASSERT_NE(dlopen("libcuda.so.1", RTLD_NOW), nullptr) << dlerror();
  void* const hosts = dlopen(test_library("attacks_dlsym").c_str(), RTLD_NOW);
  ASSERT_NE(hosts, nullptr) << dlerror();
  std::vector<std::string> said;
  BrokerOptions options;
  options.records = [&](const Record& record) { said.push_back(record.text); };
  Broker broker = Broker::open(std::move(options));
  Tenant tenant = broker.open_tenant("second");
  AdoptedLibrary library = tenant.adopt(test_library("attacks_dlsym"));
  EXPECT_THAT(said, Contains(HasSubstr("in the process before it was loaded for the tenant")));
  const auto address = reinterpret_cast<driver_address_function*>(library.symbol(DRIVER_ADDRESS));
  EXPECT_EQ(address("cuMemFree_v2"), driver_function_by_name("cuMemFree_v2"));
}

TEST(GateStart, DISABLED_BesideAnotherDriver) {
  ASSERT_NE(dlopen("libcuda.so.1", RTLD_NOW), nullptr) << dlerror();
  Broker broker = Broker::open();
  EXPECT_FALSE(broker.gate().in_force);
  EXPECT_EQ(broker.gate().mode, GateMode::none);
  EXPECT_THAT(broker.gate().reason, HasSubstr("plug-ins that ask for the driver get another one"));
  Tenant tenant = broker.open_tenant("alone");
  EXPECT_EQ(tenant.lease().state, LeaseState::ready) << "guards and shield are left";
}

TEST(GateStartBesideAnother, DriverThatWasLoadedBeforeItIsNotInForce) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("ctxbroker_gate_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  // The same code in another file is another driver.
  std::filesystem::copy_file(software_device_folder() / "libcuda.so.1", folder / "libcuda.so.1");
  // What it needs itself stands beside the original.
  const std::string folders =
      folder.string() + ":" + software_device_folder().parent_path().string();
  const ChildResult child =
      run_child("GateStart.DISABLED_BesideAnotherDriver",
                {{"LD_LIBRARY_PATH", folders}, {"CTXBROKER_DRIVER", "software"}});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

// What stands in place of dlsym in a tenant's library.
TEST(GateStart, DISABLED_LateLookUpsAreTheLoadersButForWhatIsGuarded) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  ASSERT_NE(driver, nullptr) << dlerror();
  Broker broker = Broker::open();
  ASSERT_EQ(broker.gate().mode, GateMode::late);
  void* const gate = gate_library();
  ASSERT_NE(gate, nullptr);
  const auto get = reinterpret_cast<const ctxb_gate* (*)()>(dlsym(gate, "ctxb_gate_get"));
  const auto look_up = reinterpret_cast<void* (*)(void*, const char*)>(get()->late_dlsym);
  const auto look_up_version =
      reinterpret_cast<void* (*)(void*, const char*, const char*)>(get()->late_dlvsym);
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

TEST(GateStart, DISABLED_OffWhenTheHostSaysSo) {
  BrokerOptions options;
  options.use_gate = false;
  Broker broker = Broker::open(std::move(options));
  EXPECT_FALSE(broker.gate().in_force);
  EXPECT_THAT(file_of(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuCtxSetCurrent")),
              ::testing::Not(HasSubstr("ctxbroker_gate")));
}

TEST(GateStart, DISABLED_OpenedTwiceAndAgain) {
  for (int round = 0; round < 3; ++round) {
    Broker one = Broker::open(), two = Broker::open();
    EXPECT_TRUE(one.gate().in_force) << one.gate().reason;
    EXPECT_TRUE(two.gate().in_force) << two.gate().reason;
    Tenant a = one.open_tenant("a", {LeaseKind::green}),
           b = two.open_tenant("b", {LeaseKind::green});
    for (Tenant* tenant : {&a, &b}) {
      AdoptedLibrary library = tenant->adopt(test_library("attacks_proc_address"));
      auto* allocate = reinterpret_cast<allocate_function*>(library.symbol(ALLOCATE));
      EXPECT_NE(tenant->run(0, [&] { return allocate(64); }), 0U);
    }
  }
}

class GateStartTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GateStartTest, GoesAsItSays) {
  Environment environment;
  if (driver_is_software()) {
    environment.emplace_back("LD_LIBRARY_PATH", software_device_folder().string());
  }
  const ChildResult child = run_child(std::string("GateStart.DISABLED_") + GetParam(), environment);
  EXPECT_EQ(child.exit_code, 0) << child.output;
}

INSTANTIATE_TEST_SUITE_P(Cases, GateStartTest,
                         ::testing::Values("AfterTheHostLoadedTheDriver",
                                           "LateALibraryThatTheHostHasIsLeftAloneAndNamed",
                                           "LateLookUpsAreTheLoadersButForWhatIsGuarded",
                                           "OffWhenTheHostSaysSo", "OpenedTwiceAndAgain"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace ctxbroker
