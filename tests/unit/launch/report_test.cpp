// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "../broker/json_schema.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view run_report_schema;
}

namespace ctxbroker::launch::test {
namespace {

using testing::HasSubstr;

Settings settings_of_a_run() {
  Settings settings;
  settings.pid = 17;
  settings.command = {"program"};
  return settings;
}

RunFacts facts_of_a_run() {
  RunFacts facts;
  facts.pid = 17;
  facts.driver_called = facts.finished = true;
  facts.driver = {DriverChoice::software, "/device.so", 13000, "asked for"};
  facts.gate = GateInfo{true, "first", GateMode::before_driver};
  facts.gate->unknown_functions = {{"cuNew", 2}, {"cuNewer", 0}};
  facts.devices.push_back({.ordinal = 0, .name = "device", .multiprocessors = 132});
  facts.shields.push_back({true, true, ""});
  facts.metrics.emplace();
  return facts;
}

TenantMetrics tenant(const std::string& name, std::uint64_t strikes) {
  TenantMetrics metrics;
  metrics.name = name;
  metrics.strikes = strikes;
  return metrics;
}

void expect_valid(const std::string& text) {
  const auto schema = nlohmann::json::parse(fixtures::run_report_schema);
  EXPECT_TRUE(is_valid(nlohmann::json::parse(text), schema, schema)) << text;
}

TEST(RunSummaryTest, DeviceWithoutAShieldIsTold) {
  RunFacts facts = facts_of_a_run();
  EXPECT_FALSE(has_news(facts));
  facts.shields[0] = {true, false, "the driver is older than CUDA 12.4"};
  EXPECT_TRUE(has_news(facts));
  EXPECT_EQ(summary_text(facts, false),
            "device 0 has no shield, so the driver refuses nothing there: the driver is older than "
            "CUDA 12.4");
  facts.shields[0].in_use = false;
  EXPECT_FALSE(has_news(facts)) << "nobody has used it";
}

TEST(RunReportTest, FitsItsSchema) {
  expect_valid(report_before_driver(settings_of_a_run()));
  RunFacts facts = facts_of_a_run();
  expect_valid(report_text(settings_of_a_run(), facts));
  facts.metrics->refused.push_back({"cuDevicePrimaryCtxReset_v2", "/a.so", 0, 12});
  facts.metrics->tenants.push_back(tenant("torch", 1));
  facts.notes.push_back({Severity::error, "lease", "torch", "lost \xff"});
  LeaseInfo lease;
  lease.tenant_name = "torch";
  facts.leases.push_back(lease);
  expect_valid(report_text(settings_of_a_run(), facts));
  facts.metrics.reset();
  facts.error = "why";
  expect_valid(report_text(settings_of_a_run(), facts));
}

TEST(RunReportTest, NamesTheFunctionsThatWereLookedUpOnly) {
  const auto json = nlohmann::json::parse(report_text(settings_of_a_run(), facts_of_a_run()));
  ASSERT_EQ(json["gate"]["unknown_functions"].size(), 1);
  EXPECT_EQ(json["gate"]["unknown_functions"][0]["name"], "cuNew");
}

TEST(RunReportTest, ProcessesThatAreStartedHaveFilesOfTheirOwn) {
  const Settings settings = settings_of_a_run();
  EXPECT_EQ(path_for("/a/run.json", settings, 17), "/a/run.json");
  EXPECT_EQ(path_for("/a/run.json", settings, 18), "/a/run.18.json");
  EXPECT_EQ(path_for("/a.b/run", settings, 18), "/a.b/run.18");
  EXPECT_EQ(path_for("/a/.run", settings, 18), "/a/.run.18");
  EXPECT_EQ(path_for("", settings, 18), "");
}

TEST(RunSummaryTest, RunWithoutEventsHasNoNews) {
  const RunFacts facts = facts_of_a_run();
  EXPECT_FALSE(has_news(facts));
  EXPECT_EQ(summary_text(facts, false), "");
  EXPECT_EQ(summary_text(facts, true),
            "software driver /device.so, CUDA 13.0\nnothing was refused or lost");
}

TEST(RunSummaryTest, TellsWhatWasRefusedAndByWhom) {
  RunFacts facts = facts_of_a_run();
  facts.metrics->refused.push_back({"cuDevicePrimaryCtxReset_v2", "/a.so", 1, 12});
  facts.metrics->refused.push_back({"cuDevicePrimaryCtxRelease_v2", "/b.so", 0, 1});
  EXPECT_TRUE(has_news(facts));
  EXPECT_EQ(summary_text(facts, false),
            "the driver refused cuDevicePrimaryCtxReset_v2 on device 1 12 times, from /a.so\n"
            "the driver refused cuDevicePrimaryCtxRelease_v2 on device 0 once, from /b.so");
}

TEST(RunSummaryTest, TellsOfStrikesWithTheFirstOne) {
  RunFacts facts = facts_of_a_run();
  facts.metrics->tenants = {tenant("torch", 0), tenant("hostile", 3)};
  facts.notes.push_back({Severity::warning, "gate", "hostile", "something else"});
  facts.notes.push_back({Severity::warning, "strike", "hostile", "cuMemFree_v2: not its own"});
  EXPECT_TRUE(has_news(facts));
  EXPECT_EQ(summary_text(facts, false),
            "hostile broke the rules 3 times. The first: cuMemFree_v2: not its own");
}

TEST(RunSummaryTest, TellsOfLostLeases) {
  RunFacts facts = facts_of_a_run();
  facts.metrics->tenants = {tenant("torch", 0)};
  LeaseMetrics lease;
  lease.granted = LeaseChoice(LeaseKind::green, 16);
  facts.metrics->tenants[0].leases.push_back(lease);
  EXPECT_FALSE(has_news(facts));
  facts.metrics->tenants[0].leases[0].state = LeaseState::hung;
  EXPECT_TRUE(has_news(facts));
  EXPECT_EQ(summary_text(facts, false),
            "torch on device 0, green:16 lease: its work on the device hung");
}

TEST(RunSummaryTest, TellsOfPatternsThatGaveNoLibrary) {
  RunFacts facts = facts_of_a_run();
  facts.metrics->unmatched_patterns = {"*/a.so", "*"};
  facts.metrics->late_patterns = {{"*/b.so", "two", "*/b*", "one"},
                                  {"*/c.so", "one", "*/c*", "one"},
                                  {"/opt/*", "*", "*/c*", "one"}};
  EXPECT_TRUE(has_news(facts));
  EXPECT_EQ(
      summary_text(facts, false),
      "the pattern */a.so has matched no library\n"
      "no package brings CUDA code of its own, so none became a tenant\n"
      "the pattern */b.so gave two no library: the earlier pattern */b* gives what it matches "
      "to one");
  expect_valid(report_text(settings_of_a_run(), facts));
  facts.is_first = false;
  EXPECT_FALSE(has_news(facts)) << "a started program need not have all libraries";
  facts.metrics->late_patterns.clear();
  EXPECT_TRUE(has_news(facts)) << "it has none of them";
  facts.metrics->libraries.push_back({"/d.so", {}, "three", "*/d.so"});
  EXPECT_FALSE(has_news(facts));
}

TEST(RunSummaryTest, SaysThatTheFiguresAreMissing) {
  RunFacts facts = facts_of_a_run();
  facts.metrics.reset();
  EXPECT_TRUE(has_news(facts));
  EXPECT_THAT(summary_text(facts, false), HasSubstr("its figures are missing"));
}

}  // namespace
}  // namespace ctxbroker::launch::test
