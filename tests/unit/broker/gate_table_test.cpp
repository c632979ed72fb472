// SPDX-License-Identifier: Apache-2.0
// The gate's table, and its policies.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "gate/policy.hpp"

namespace ctxbroker::detail {
namespace {

// Symbol by policy, as the gate is built.
const std::map<std::string, std::string>& table() {
  static const std::map<std::string, std::string> all{
#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, policy) {#symbol, #policy},
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION
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

}  // namespace
}  // namespace ctxbroker::detail
