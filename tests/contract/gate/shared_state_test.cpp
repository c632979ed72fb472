// SPDX-License-Identifier: Apache-2.0
// Arrays of a neighbour, and what a context or the device has only once: limits, the preference for
// caches, lines that stay in the L2 cache. An attacker destroys and changes these in each kind of
// lease, inside guards and on a thread of its own, with a gate and with a late one. Without the
// gate, the damage shows. Each case is a process.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "attacks/attacks.h"
#include "ctxbroker/broker.hpp"
#include "neighbour.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

enum class Shows { always, where_contexts_are_shared, on_software_device, never };

struct Change {
  const char* attack;
  Shows without_gate;
  bool is_of_a_neighbour = false;  // the attack names a thing that the neighbour holds
};
constexpr Change changes[] = {
    {"destroy_array", Shows::always, true},
    {"destroy_mipmapped", Shows::always, true},
    {"set_limit", Shows::where_contexts_are_shared},
    {"set_printf_limit", Shows::where_contexts_are_shared},
    {"set_heap_limit", Shows::where_contexts_are_shared},
    // Not every device follows it, or tells.
    {"set_cache", Shows::on_software_device},
    {"reset_cache", Shows::never},
};

LeaseKind kind_of(const std::string& lease) {
  return lease == "private" ? LeaseKind::private_own
         : lease == "green" ? LeaseKind::green
                            : LeaseKind::shared;
}

// ---- in the child
// --------------------------------------------------------------------------------

struct Case {
  std::string lease, place, protection, attack;  // attack "all": each
};

void play(const Case& given) {
  if (given.protection == "late") dlopen("libcuda.so.1", RTLD_NOW);
  BrokerOptions options;
  options.use_gate = given.protection != "off";
  options.records = [](const Record& record) {
    std::printf("%s: %s\n", record.topic, record.text.c_str());
  };
  Broker broker = Broker::open(std::move(options));
  EXPECT_EQ(broker.gate().mode, given.protection == "on"     ? GateMode::before_driver
                                : given.protection == "late" ? GateMode::late
                                                             : GateMode::none);
  EXPECT_EQ(driver_call("cuInit", 0U), CUDA_SUCCESS);
  const LeaseKind kind = kind_of(given.lease);
  Tenant neighbours = broker.open_tenant("neighbour", {LeaseChoice(kind)});
  Tenant attacker = broker.open_tenant("attacker", {LeaseChoice(kind)});
  // The calls of this program do not go through a late gate.
  const AdoptedLibrary neighbours_library = neighbours.adopt(test_library("attacks_worker"));
  const AdoptedLibrary library = attacker.adopt(test_library("attacks_dlsym"));
  driver_look_up =
      reinterpret_cast<driver_address_function*>(neighbours_library.symbol(DRIVER_ADDRESS));
  auto* const here = reinterpret_cast<attack_function*>(library.symbol(ATTACK));
  auto* const own_thread = reinterpret_cast<attack_function*>(library.symbol(ATTACK_ON_OWN_THREAD));
  Neighbour neighbour;
  neighbours.run(0, [&] { neighbour.settle(neighbours.lease().context); });
  for (const Change& change : changes) {
    if (given.attack != "all" && given.attack != change.attack) continue;
    if (given.place == "own_thread") {
      own_thread(change.attack, &neighbour.target());
    } else {
      attacker.run(0, [&] { here(change.attack, &neighbour.target()); });
    }
    std::fflush(stdout);
    neighbours.run(0, [&] {
      for (const std::string& one : neighbour.damage()) {
        std::printf("DAMAGE %s: %s\n", change.attack, one.c_str());
      }
    });
    std::printf("LOOKED %s, %u strikes\n", change.attack, unsigned(attacker.strikes()));
    std::fflush(stdout);
  }
}

TEST(SharedStateCase, DISABLED_PlaysTheChosenCase) {
  const char* text = std::getenv("CTXB_SHARED_STATE");  // NOLINT(concurrency-mt-unsafe)
  ASSERT_NE(text, nullptr);
  Case given;
  std::istringstream(text) >> given.lease >> given.place >> given.protection >> given.attack;
  play(given);
}

// ---- in the parent
// -------------------------------------------------------------------------------

ChildResult run_case(const std::string& lease, const std::string& place, const char* protection,
                     const char* attack) {
  Environment environment{
      {"CTXB_SHARED_STATE", lease + " " + place + " " + protection + " " + attack}};
  if (driver_is_software()) {
    environment.emplace_back("LD_LIBRARY_PATH", software_device_folder().string());
  }
  return run_child("SharedStateCase.DISABLED_PlaysTheChosenCase", environment);
}

// Returns the status of the attacked driver call. It is -1 if the driver lacks the call, or the
// object that the call is about.
int status_in(const std::string& output) {
  const auto at = output.find("ATTACKED: ");
  return at != std::string::npos ? std::atoi(output.c_str() + at + 10) : 0;
}

class SharedState : public ::testing::TestWithParam<const char*> {};

TEST_P(SharedState, SharedStateStaysAsTheNeighbourHasIt) {
  for (const std::string place : {"guarded", "own_thread"}) {
    for (const char* protection : {"on", "late"}) {
      SCOPED_TRACE(place + " " + protection);
      const ChildResult with = run_case(GetParam(), place, protection, "all");
      EXPECT_EQ(with.exit_code, 0) << with.output;
      EXPECT_THAT(with.output, Not(HasSubstr("DAMAGE")));
      EXPECT_THAT(with.output, HasSubstr("array 0x"));
      EXPECT_THAT(with.output, HasSubstr("is a neighbour's, neighbour; it was left alone"));
      for (const Change& change : changes) {
        EXPECT_THAT(with.output, HasSubstr(std::string("LOOKED ") + change.attack));
      }
    }
  }
}

TEST_P(SharedState, SharedStateChangesWithoutTheGate) {
  const bool is_private = GetParam() == std::string("private");
  for (const Change& change : changes) {
    if (change.without_gate == Shows::never) continue;
    if (change.without_gate == Shows::on_software_device && !driver_is_software()) continue;
    SCOPED_TRACE(change.attack);
    const ChildResult without = run_case(GetParam(), "guarded", "off", change.attack);
    const int status = status_in(without.output);
    // Some drivers make no arrays with levels, and some destroy none of another context.
    const bool is_refused = change.is_of_a_neighbour && status != 0;
    const bool is_damaged =
        without.output.find("DAMAGE") != std::string::npos || without.exit_code != 0;
    EXPECT_EQ(is_damaged, !is_refused && (change.is_of_a_neighbour || !is_private))
        << without.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Leases, SharedState, ::testing::Values("shared", "private", "green"),
                         [](const auto& one) {
                           const std::string name = one.param;
                           return name == "private" ? "private_own" : name;
                         });

}  // namespace
}  // namespace ctxbroker
