// SPDX-License-Identifier: Apache-2.0
// The gate's table, and its rules.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "gate/rule.hpp"

namespace ctxbroker::detail {
namespace {

// Symbol by rule, as the gate is built.
const std::map<std::string, std::string>& table() {
  static const std::map<std::string, std::string> all{
#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, rule) {#symbol, #rule},
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION
  };
  return all;
}

std::set<std::string> symbols_with_rule() {
  std::set<std::string> symbols;
  for (std::size_t i = 0; i < rule_count(); ++i) {
    if (rule_at(i).rule != nullptr) symbols.insert(rule_at(i).symbol);
  }
  return symbols;
}

TEST(GateTableTest, EveryFunctionThatIsSaidToBeGuardedHasItsRule) {
  const auto symbols = symbols_with_rule();
  for (const auto& [symbol, rule] : table()) {
    if (rule == "look_up") continue;  // the gate's own
    EXPECT_EQ(symbols.count(symbol), rule == "pass" ? 0U : 1U) << symbol << ": " << rule;
  }
  for (const auto& symbol : symbols) EXPECT_EQ(table().count(symbol), 1U) << symbol;
}

TEST(GateTableTest, NoFunctionHasTwoRules) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < rule_count(); ++i) {
    if (rule_at(i).rule == nullptr) continue;
    EXPECT_TRUE(seen.insert(rule_at(i).symbol).second) << rule_at(i).symbol;
  }
}

}  // namespace
}  // namespace ctxbroker::detail
