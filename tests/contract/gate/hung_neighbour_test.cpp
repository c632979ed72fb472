// SPDX-License-Identifier: Apache-2.0
// A tenant's kernel hangs, and a neighbour goes on: every call that the neighbour, its host or its
// own code makes returns in its time, whether the broker knows of the hung work already or not.
// What would wait is put off, listed, and done when the work ends. This starts a child for each
// pair of lease kinds and each call.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <tuple>

#include "hung_neighbour.hpp"
#include "support/child_process.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

void passes_in_a_child(const char* test, const Cell& cell, const Environment& more = {}) {
  Environment environment = {{"LSAN_OPTIONS", "detect_leaks=0"}};
  environment.insert(environment.end(), more.begin(), more.end());
  const ChildResult child = run_child(
      std::string("Cells/HungNeighbour.DISABLED_") + test + "/" + cell_name(cell), environment);
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
  // For who measures: how long its longest call took, in the report of --gtest_output.
  int longest = 0;
  for (std::size_t at = child.output.find(took_text); at != std::string::npos;
       at = child.output.find(took_text, at + 1)) {
    longest = std::max(longest, std::atoi(child.output.c_str() + at + sizeof took_text - 1));
  }
  const std::string with = more.empty() ? "" : "_" + more.front().first;
  ::testing::Test::RecordProperty(test + cell_name(cell) + with + "_ms", longest);
}

const Environment with_pools = {{pools_variable, "1"}};

class HungNeighbourTest : public ::testing::TestWithParam<std::tuple<LeaseKind, LeaseKind, Call>> {
};

TEST_P(HungNeighbourTest, EveryCallBesideAHungNeighbourReturnsInTime) {
  const auto& [guilty, innocent, call] = GetParam();
  passes_in_a_child("CallIsAnsweredInTime", {guilty, innocent, call, true});
  // Nobody can tell the hang from long work of the tenant's own:
  // WaitThatHasBegunIsAnsweredWhenTheHangIsKnown.
  if (call == Call::synchronize && guilty != LeaseKind::private_own &&
      innocent == LeaseKind::shared) {
    return;
  }
  passes_in_a_child("CallIsAnsweredInTime", {guilty, innocent, call, false});
}

// A second wait would take longer than the timeout and the margin together.
TEST(HungGreenTest, LeaseThatTheHostAskedForWaitsOnce) {
  passes_in_a_child("CallIsAnsweredInTime",
                    {LeaseKind::shared, LeaseKind::green, Call::first_run, false},
                    {{"CTXBROKER_TEST_TIMEOUT_MS", "3000"}});
}

std::string call_name(
    const ::testing::TestParamInfo<std::tuple<LeaseKind, LeaseKind, Call>>& test) {
  const auto& [guilty, innocent, call] = test.param;
  return std::string(to_string(guilty)) + "_" + to_string(innocent) + "_" + name_of(call);
}

INSTANTIATE_TEST_SUITE_P(Cells, HungNeighbourTest,
                         ::testing::Combine(::testing::ValuesIn(kinds), ::testing::ValuesIn(kinds),
                                            ::testing::ValuesIn(calls)),
                         call_name);

// The calls that free memory. With a pool of the neighbour's own, nothing has to wait and nothing
// is put off.
class HungNeighbourWithPoolsTest : public HungNeighbourTest {};

TEST_P(HungNeighbourWithPoolsTest, NothingIsPutOff) {
  const auto& [guilty, innocent, call] = GetParam();
  for (const bool known : {true, false}) {
    passes_in_a_child("CallIsAnsweredInTime", {guilty, innocent, call, known}, with_pools);
  }
}

const auto kinds_with_pools = ::testing::Values(LeaseKind::shared, LeaseKind::green);

INSTANTIATE_TEST_SUITE_P(
    Cells, HungNeighbourWithPoolsTest,
    ::testing::Combine(kinds_with_pools, kinds_with_pools,
                       ::testing::Values(Call::deactivate, Call::destroy, Call::unload_library,
                                         Call::release, Call::free_of_its_own, Call::close_tenant,
                                         Call::close_broker)),
    call_name);

class HungPairTest : public ::testing::TestWithParam<std::tuple<LeaseKind, LeaseKind>> {};

TEST_P(HungPairTest, DriverAloneWaitsForTheHungNeighbour) {
  const auto& [guilty, innocent] = GetParam();
  passes_in_a_child("DriverAloneWaitsForTheHungNeighbour",
                    {guilty, innocent, Call::process, false});
}

TEST_P(HungPairTest, WaitThatHasBegunIsAnsweredWhenTheHangIsKnown) {
  const auto& [guilty, innocent] = GetParam();
  if (innocent != LeaseKind::shared) return;  // others wait for their own work alone
  passes_in_a_child("WaitThatHasBegunIsAnsweredWhenTheHangIsKnown",
                    {guilty, innocent, Call::process, false});
}

TEST_P(HungPairTest, GuiltyTenantIsAnsweredInTime) {
  const auto& [guilty, innocent] = GetParam();
  const Cell cell{guilty, innocent, Call::process, false};
  passes_in_a_child("GuiltyTenantIsAnsweredInTime", cell);
  passes_in_a_child("GuiltyTenantIsAnsweredInTime", cell, with_pools);
}

TEST_P(HungPairTest, HungWorkThatEndsBeforeTheBrokerIsGivenBack) {
  const auto& [guilty, innocent] = GetParam();
  passes_in_a_child("HungWorkThatEndsBeforeTheBrokerIsGivenBack",
                    {guilty, innocent, Call::process, false});
}

INSTANTIATE_TEST_SUITE_P(Pairs, HungPairTest,
                         ::testing::Combine(::testing::ValuesIn(kinds), ::testing::ValuesIn(kinds)),
                         [](const auto& test) {
                           return std::string(to_string(std::get<0>(test.param))) + "_" +
                                  to_string(std::get<1>(test.param));
                         });

}  // namespace
}  // namespace ctxbroker
