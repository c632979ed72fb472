// The gate's table, its policies, and who holds what.
#include <gmock/gmock.h>

#include <map>
#include <set>
#include <string>

#include "gate/owners.hpp"
#include "gate/policies.hpp"

namespace ctxbroker::detail {
namespace {

using ::testing::ElementsAre;

// Symbol by policy, as the gate is built.
const std::map<std::string, std::string>& table() {
  static const std::map<std::string, std::string> all{
#define CTXB_GATE_ENTRY(symbol, base, version, per_thread, scope, policy) {#symbol, #policy},
#include "gate/gate_table.inc"
#undef CTXB_GATE_ENTRY
  };
  return all;
}

std::set<std::string> symbols_with_policy() {
  std::set<std::string> symbols;
  for (std::size_t i = 0; i < policy_count(); ++i) {
    if (policy_at(i).policy != nullptr) symbols.insert(policy_at(i).symbol);
  }
  return symbols;
}

TEST(GateTableTest, EveryFunctionThatIsSaidToBeGuardedHasItsPolicy) {
  const auto symbols = symbols_with_policy();
  for (const auto& [symbol, policy] : table()) {
    if (policy == "look_up") continue;  // the gate's own
    EXPECT_EQ(symbols.count(symbol), policy == "pass" ? 0U : 1U) << symbol << ": " << policy;
  }
  for (const auto& symbol : symbols) EXPECT_EQ(table().count(symbol), 1U) << symbol;
}

TEST(GateTableTest, NoFunctionHasTwoPolicies) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < policy_count(); ++i) {
    if (policy_at(i).policy == nullptr) continue;
    EXPECT_TRUE(seen.insert(policy_at(i).symbol).second) << policy_at(i).symbol;
  }
}

TEST(OwnersTest, AHandleIsItsHoldersUntilItEnds) {
  Owners all;
  const TenantId one{1'000'001}, two{1'000'002};
  all.add({Kind::stream, 0x1000, 0, 0, 0, one});
  all.add({Kind::event, 0x1000, 0, 0, 0, two});  // another kind of thing
  EXPECT_EQ(all.owner(Kind::stream, 0x1000), one);
  EXPECT_FALSE(all.remove(Kind::stream, 0x1000, two).has_value());
  EXPECT_TRUE(all.remove(Kind::stream, 0x1000, one).has_value());
  EXPECT_FALSE(all.owner(Kind::stream, 0x1000).has_value());
  EXPECT_EQ(all.owner(Kind::event, 0x1000), two);
  EXPECT_TRUE(all.remove(Kind::event, 0x1000).has_value());
}

TEST(OwnersTest, WhatATenantHoldsComesInTheOrderInWhichItIsGivenBack) {
  Owners all;
  const TenantId one{1'000'003};
  for (const Kind kind : {Kind::context, Kind::memory, Kind::stream, Kind::graph_exec}) {
    all.add({kind, 0x2000, 0, 0, 0, one});
  }
  std::vector<Kind> kinds;
  for (const Holding& holding : all.held_by(one)) {
    kinds.push_back(holding.kind);
    EXPECT_TRUE(all.remove(holding.kind, holding.handle, one).has_value());
  }
  EXPECT_THAT(kinds, ElementsAre(Kind::graph_exec, Kind::stream, Kind::memory, Kind::context));
  EXPECT_TRUE(all.held_by(one).empty());
}

TEST(OwnersTest, AContextTakesAlongWhatWasMadeInIt) {
  Owners all;
  const TenantId one{1'000'004};
  all.add({Kind::memory, 0x3000, 64, 0, 0xc0, one});
  all.add({Kind::memory, 0x4000, 64, 0, 0xd0, one});
  all.forget_context(one, 0xc0);
  EXPECT_FALSE(all.owner(Kind::memory, 0x3000).has_value());
  EXPECT_TRUE(all.remove(Kind::memory, 0x4000).has_value());
}

}  // namespace
}  // namespace ctxbroker::detail
