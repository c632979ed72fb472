// SPDX-License-Identifier: Apache-2.0
// Calls that come from nobody's code: a plug-in has handed a function of the driver to a library of
// the system, or to code outside of all libraries, and these call it when nothing of the plug-in is
// on the stack. With the gate they end nothing that a tenant holds, in any lease, and the host
// hears of them. Without it, the neighbours are harmed. The host's own things are ended by such
// calls as ever. Each cell is a process.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "attacks/callbacks.h"
#include "ctxbroker/broker.hpp"
#include "neighbour.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Way {
  const char* name;
  bool on_hosts_thread;  // which has a context current: a real driver wants one for most calls
};
constexpr Way ways[] = {
    {"thread", false}, {"c11_thread", false}, {"timer", false},       {"end_of_reading", false},
    {"key", true},     {"c11_key", true},     {"thread_local", true}, {"tail", true},
    {"file", true},    {"context", true},     {"exit", true},         {"parallel_region", true},
    {"code", false}};

struct Blow {
  const char* function;
  void* (*argument)(const AttackTarget& target);
};
void* address(std::uint64_t value) {
  return reinterpret_cast<void*>(value);  // NOLINT(performance-no-int-to-ptr): as an attacker does
}
constexpr Blow blows[] = {
    {"cuMemFree_v2", [](const AttackTarget& target) { return address(target.memory); }},
    {"cuMemFreeHost", [](const AttackTarget& target) { return target.pinned; }},
    {"cuStreamDestroy_v2", [](const AttackTarget& target) { return target.stream; }},
    {"cuEventDestroy_v2", [](const AttackTarget& target) { return target.event; }},
    {"cuModuleUnload", [](const AttackTarget& target) { return target.module; }},
    {"cuGraphDestroyNode", [](const AttackTarget& target) { return target.node; }},
    // Only a private lease has a context that this call ends, and only a green one that the other
    // does.
    {"cuCtxDestroy_v2", [](const AttackTarget& target) { return target.context; }},
    {"cuGreenCtxDestroy", [](const AttackTarget& target) { return target.green; }},
};

// Calls that name nothing that a tenant holds, and reach all that work on the device or in the
// context.
struct WideBlow {
  const char* function;
  const char* way;
  std::uint64_t argument, second;
  bool shows;              // without the gate, the neighbour sees it
  bool on_gpu_too = true;  // or only on the software device
  int times = 1;
};
constexpr WideBlow wide_blows[] = {
    {"cuDevicePrimaryCtxRelease_v2", "thread", 0, 0, true, true, 8},
    {"cuDevicePrimaryCtxReset_v2", "thread", 0, 0, false},  // the shield stops it
    {"cuDevicePrimaryCtxSetFlags_v2", "context", 0, CU_CTX_SCHED_BLOCKING_SYNC, true},
    {"cuCtxSetFlags", "context", CU_CTX_SCHED_BLOCKING_SYNC, 0, true, false},
    {"cuCtxSetLimit", "context", CU_LIMIT_PRINTF_FIFO_SIZE, 4U << 20, true},
    {"cuCtxSetCacheConfig", "context", CU_FUNC_CACHE_PREFER_L1, 0, true, false},
    {"cuCtxResetPersistingL2Cache", "context", 1, 0, false},
    {"cuDeviceGraphMemTrim", "thread", 0, 0, false},
};

// ---- in the child
// --------------------------------------------------------------------------------

// A host with three neighbours and an attacker.
class Scene {
 public:
  explicit Scene(const std::string& protection) : late_(protection == "late") {
    dlopen("libgomp.so.1", RTLD_NOW);
    if (late_) dlopen("libcuda.so.1", RTLD_NOW);
    BrokerOptions options;
    options.use_gate = protection != "off";
    options.records = [this](const Record& record) {
      std::printf("%s: %s\n", record.topic, record.text.c_str());
      const std::lock_guard lock(mutex_);
      if (record.text.find("it was left alone") != std::string::npos) ++refused_;
    };
    broker_.emplace_back(Broker::open(std::move(options)));
    EXPECT_EQ(broker().gate().mode, late_                 ? GateMode::late
                                    : protection == "off" ? GateMode::none
                                                          : GateMode::before_driver);
    EXPECT_EQ(driver_call("cuInit", 0U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxRetain", &hosts_, 0), CUDA_SUCCESS);
    for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
      tenants_.push_back(broker().open_tenant(to_string(kind), {LeaseChoice(kind)}));
    }
    if (late_) {
      // The calls of this program do not go through a late gate.
      libraries_.push_back(tenants_.front().adopt(test_library("attacks_dlsym")));
      driver_look_up =
          reinterpret_cast<decltype(driver_look_up)>(libraries_.back().symbol(DRIVER_ADDRESS));
    }
    attacker_.push_back(broker().open_tenant("attacker", {LeaseChoice(LeaseKind::shared)}));
    libraries_.push_back(attacker_.front().adopt(test_library("attacks_callbacks")));
    hand_over_ = reinterpret_cast<hand_over_function*>(libraries_.back().symbol(HAND_OVER));
    second_ = static_cast<void**>(libraries_.back().symbol(SECOND_ARGUMENT));
  }

  // Attacks each neighbour, from inside a guard of the attacker and from outside.
  void attack_all(const std::string& way, const Blow& blow) {
    for (Tenant& tenant : tenants_) {
      const bool is_private = tenant.lease().granted.kind == LeaseKind::private_own;
      if (blow.function == std::string("cuCtxDestroy_v2") && !is_private) continue;
      for (const bool guarded : {true, false}) attack(tenant, way, blow, guarded);
    }
  }

  // On a neighbour in a shared lease, whose context is the host's too.
  void strike_all(const WideBlow& blow) {
    Tenant& tenant = tenants_.front();
    Neighbour& neighbour = neighbours_.emplace_back();
    tenant.run(0, [&] { neighbour.settle(tenant.lease().context); });
    const int refused_before = refused();
    *second_ = address(blow.second);
    for (int i = 0; i < blow.times; ++i) {
      hand_over(blow.way, blow.function, address(blow.argument), false);
    }
    if (refused() - refused_before != blow.times) std::printf("SILENCE %s\n", blow.function);
    std::vector<std::string> damage;
    tenant.run(0, [&] { damage = neighbour.damage(); });
    for (const std::string& one : damage) {
      std::printf("DAMAGE %s: %s\n", blow.function, one.c_str());
    }
    if (driver_call("cuDevicePrimaryCtxRelease_v2", 0) != CUDA_SUCCESS) {
      std::printf("DAMAGE %s: the host has no primary context to release\n", blow.function);
    }
    driver_call("cuDevicePrimaryCtxRetain", &hosts_, 0);
    std::printf("LOOKED %s\n", blow.function);
  }

  // The same calls by the host.
  void change_own() {
    std::size_t bytes = 0;
    unsigned flags = 0;
    int active = 0;
    driver_call("cuCtxSetCurrent", hosts_);
    EXPECT_EQ(driver_call("cuCtxSetLimit", CU_LIMIT_PRINTF_FIFO_SIZE, std::size_t{4} << 20),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxGetLimit", &bytes, CU_LIMIT_PRINTF_FIFO_SIZE), CUDA_SUCCESS);
    EXPECT_GE(bytes, std::size_t{4} << 20);
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxSetFlags_v2", 0, CU_CTX_SCHED_BLOCKING_SYNC),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxGetState", 0, &flags, &active), CUDA_SUCCESS);
    EXPECT_EQ(flags & CU_CTX_SCHED_MASK, CU_CTX_SCHED_BLOCKING_SYNC);
    // A host's code may be made at run time, and is in no library then.
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxRetain", &hosts_, 0), CUDA_SUCCESS);
    hand_over("code", "cuDevicePrimaryCtxRelease_v2", address(0), false);
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxRelease_v2", 0), CUDA_SUCCESS);
    EXPECT_EQ(refused(), 0);
  }

  // The host's own memory.
  void free_own(const std::string& way) {
    CUdeviceptr memory = 0;
    driver_call("cuCtxSetCurrent", hosts_);
    EXPECT_EQ(driver_call("cuMemAlloc_v2", &memory, std::size_t{64}), CUDA_SUCCESS);
    if (!hand_over(way, "cuMemFree_v2", address(memory), false)) return;
    const auto look = [memory] {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (context_of(memory) != nullptr && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::printf(context_of(memory) == nullptr ? "FREED\n" : "KEPT\n");
      std::fflush(stdout);
    };
    way == "exit" ? looks_.push_back(look) : look();
  }

 private:
  Broker& broker() { return broker_.front(); }

  // From a host thread, which then ends.
  bool hand_over(const std::string& way, const char* function, void* argument, bool guarded) {
    bool done = false;
    const auto call = [&] { done = hand_over_(way.c_str(), function, argument) != 0; };
    std::thread([&] {
      driver_call("cuCtxSetCurrent", hosts_);
      guarded ? attacker_.front().run(0, call) : call();
    }).join();
    if (!done) std::printf("IMPOSSIBLE\n");
    return done;
  }

  void attack(Tenant& tenant, const std::string& way, const Blow& blow, bool guarded) {
    Neighbour& neighbour = neighbours_.emplace_back();
    tenant.run(0, [&] { neighbour.settle(tenant.lease().context); });
    const int refused_before = refused();
    void* const argument = blow.argument(neighbour.target());
    if (argument == nullptr) return;
    bool done = false;
    const auto hand_over = [&] { done = hand_over_(way.c_str(), blow.function, argument) != 0; };
    std::thread([&] {  // a host thread
      driver_call("cuCtxSetCurrent", hosts_);
      guarded ? attacker_.front().run(0, hand_over) : hand_over();
    })
        .join();
    if (!done) {
      std::printf("IMPOSSIBLE\n");
      return;
    }
    const std::string name =
        std::string(tenant.name()) + (guarded ? " guarded " : " unguarded ") + blow.function;
    const auto look = [this, &tenant, &neighbour, refused_before, name] {
      std::vector<std::string> damage;
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      // The call may be still to come.
      do {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        tenant.run(0, [&] { damage = neighbour.damage(); });
      } while (damage.empty() && refused() == refused_before &&
               std::chrono::steady_clock::now() < until);
      std::printf("LOOKED %s\n", name.c_str());
      if (!damage.empty()) std::printf("DAMAGE %s: %s\n", name.c_str(), damage.front().c_str());
      if (refused() == refused_before) std::printf("SILENCE %s\n", name.c_str());
      std::fflush(stdout);
    };
    way == "exit" ? looks_.push_back(look) : look();
  }

 public:
  // When the handlers that the attacker has left have run.
  void look_at_exit() {
    for (const auto& look : looks_) look();
  }

 private:
  int refused() {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

  const bool late_;
  std::mutex mutex_;
  int refused_ = 0;
  std::vector<Broker> broker_;
  CUcontext hosts_ = nullptr;
  std::vector<Tenant> tenants_, attacker_;
  std::vector<AdoptedLibrary> libraries_;
  hand_over_function* hand_over_ = nullptr;
  void** second_ = nullptr;
  std::deque<Neighbour> neighbours_;
  std::vector<std::function<void()>> looks_;
};

Scene* scene = nullptr;  // until the process has ended

TEST(NobodysCodeCell, DISABLED_PlaysTheChosenCell) {
  const char* text = std::getenv("CTXB_NOBODYS_CODE");  // NOLINT(concurrency-mt-unsafe)
  ASSERT_NE(text, nullptr);
  std::string way, function, protection;
  std::istringstream(text) >> way >> function >> protection;
  scene = new Scene(protection);
  std::atexit([] { scene->look_at_exit(); });
  if (function == "own") scene->free_own(way);
  if (function == "change") return scene->change_own();
  for (const WideBlow& blow : wide_blows) {
    if (way == "wide" && function == blow.function) scene->strike_all(blow);
  }
  if (way == "wide") return;
  for (const Blow& blow : blows) {
    if (function == "all" || function == blow.function) scene->attack_all(way, blow);
  }
}

// ---- in the parent
// -------------------------------------------------------------------------------

std::string run_cell(const std::string& way, const std::string& function,
                     const std::string& protection) {
  Environment environment{{"CTXB_NOBODYS_CODE", way + " " + function + " " + protection}};
  if (driver_is_software()) {
    environment.emplace_back("LD_LIBRARY_PATH", software_device_folder().string());
  }
  const ChildResult child = run_child("NobodysCodeCell.DISABLED_PlaysTheChosenCell", environment);
  return child.output + (child.exit_code == 0 ? "" : "DAMAGE: the process ended\n");
}

std::size_t count(const std::string& text, const std::string& word) {
  std::size_t found = 0;
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

class NobodysCode : public ::testing::TestWithParam<Way> {};

TEST_P(NobodysCode, NobodysCodeEndsThingsOfTheHostAndNoneOfATenant) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer crashes where a thread begins or ends in other code";
#endif
  const Way& way = GetParam();
  for (const char* protection : {"on", "late"}) {
    SCOPED_TRACE(protection);
    const std::string with = run_cell(way.name, "all", protection);
    if (with.find("IMPOSSIBLE") != std::string::npos) GTEST_SKIP() << "not on this machine";
    EXPECT_EQ(count(with, "LOOKED"), 2 * (3 * (std::size(blows) - 2) + 2)) << with;
    EXPECT_THAT(with, Not(HasSubstr("DAMAGE")));
    if (driver_is_software() || way.on_hosts_thread) {
      EXPECT_THAT(run_cell(way.name, "own", protection), HasSubstr("FREED"));
      EXPECT_THAT(with, Not(HasSubstr("SILENCE")));
    }
  }
  if (!driver_is_software() && !way.on_hosts_thread) return;
  const std::string without = run_cell(way.name, "cuMemFree_v2", "off");
  // A GPU's driver may end the process at the second free of the same memory.
  const bool has_ended = without.find("DAMAGE: the process ended") != std::string::npos;
  EXPECT_TRUE(count(without, "DAMAGE") == 6 || has_ended) << without;
}

INSTANTIATE_TEST_SUITE_P(Ways, NobodysCode, ::testing::ValuesIn(ways),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(NobodysCodeWithoutGate, NobodysCodeEndsThingsOfANeighbourWithoutTheGate) {
  for (const Blow& blow : blows) {
    const std::string without = run_cell("key", blow.function, "off");
    EXPECT_THAT(without, HasSubstr("DAMAGE")) << blow.function;
  }
}

class NobodysCodeOnTheDevice : public ::testing::TestWithParam<WideBlow> {};

TEST_P(NobodysCodeOnTheDevice, DeviceWideCallOfNobodysCodeReachesNoTenant) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer crashes where a thread begins in other code";
#endif
  const WideBlow& blow = GetParam();
  for (const char* protection : {"on", "late"}) {
    SCOPED_TRACE(protection);
    const std::string with = run_cell("wide", blow.function, protection);
    EXPECT_THAT(with, HasSubstr("LOOKED"));
    EXPECT_THAT(with, Not(HasSubstr("DAMAGE")));
    EXPECT_THAT(with, Not(HasSubstr("SILENCE")));
  }
  const std::string without = run_cell("wide", blow.function, "off");
  if (driver_is_software() || blow.on_gpu_too) {
    EXPECT_EQ(without.find("DAMAGE") != std::string::npos, blow.shows) << without;
  }
}

INSTANTIATE_TEST_SUITE_P(Blows, NobodysCodeOnTheDevice, ::testing::ValuesIn(wide_blows),
                         [](const auto& one) { return std::string(one.param.function); });

TEST(NobodysCodeOfTheHost, DeviceWideCallOfTheHostIsNotHeldBack) {
  for (const char* protection : {"on", "late"}) {
    EXPECT_THAT(run_cell("wide", "change", protection), Not(HasSubstr("DAMAGE")));
  }
}

}  // namespace
}  // namespace ctxbroker
