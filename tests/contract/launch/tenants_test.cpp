// SPDX-License-Identifier: Apache-2.0
// Libraries that are tenants by pattern.
#include <filesystem>

#include "run.hpp"

namespace ctxbroker::launch::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The tenant's part of a report.
nlohmann::json tenant_in(const nlohmann::json& report, const std::string& name) {
  for (const auto& tenant : report.at("tenants")) {
    if (tenant.at("name") == name) return tenant;
  }
  ADD_FAILURE() << "no tenant " << name << " in " << report.dump(2);
  return nullptr;
}

std::string lease_in(const nlohmann::json& report, const std::string& tenant) {
  for (const auto& lease : report.at("leases")) {
    if (lease.at("tenant") == tenant) return lease.at("granted");
  }
  return "none";
}

TEST_F(RunTest, ResetOfATenantSucceedsAndChangesNothingForOthers) {
  const auto ended =
      run_program({"--tenant", "painter=*/launch_neighbour.so", "--report", at("report.json")},
                  {"use", "allocate-by=" + neighbour(), "reset-by=" + neighbour(), "look"});
  EXPECT_EQ(ended.output, "use: 0\nallocate: 0\nreset_device: 0\nmemory: whole\n");
  EXPECT_EQ(ended.errors, "");
  const auto json = report();
  EXPECT_THAT(json.at("refused"), ElementsAre());
  EXPECT_EQ(json.at("libraries").at(0).at("path"), neighbour());
  EXPECT_EQ(json.at("libraries").at(0).at("tenant_name"), "painter");
  EXPECT_EQ(json.at("libraries").at(0).at("pattern"), "*/launch_neighbour.so");
  EXPECT_EQ(tenant_in(json, "painter").at("guarded_calls").at("cuDevicePrimaryCtxReset_v2"), 1);
  EXPECT_THAT(json.at("unmatched_patterns"), ElementsAre());
}

TEST_F(RunTest, ResetOfALibraryWithoutAPatternIsRefusedAsAControl) {
  const auto ended = run_program({"--tenant", "other=*/launch_neighbour_twin.so"},
                                 {"use", "allocate-by=" + neighbour("launch_neighbour_twin"),
                                  "reset-by=" + neighbour(), "look"});
  EXPECT_THAT(ended.output, HasSubstr("reset_device: 800\nmemory: whole\n"));
}

std::string state_in(const nlohmann::json& report, const std::string& tenant) {
  for (const auto& lease : report.at("leases")) {
    if (lease.at("tenant") == tenant) return lease.at("state");
  }
  return "none";
}

// The texts of its records with that topic.
std::vector<std::string> records_in(const nlohmann::json& report, const std::string& topic) {
  std::vector<std::string> texts;
  for (const auto& record : report.at("records")) {
    if (record.at("topic") == topic) texts.push_back(record.at("text"));
  }
  return texts;
}

// Options for a tenant that a loss befalls and one beside it.
std::vector<std::string> loser_and_neighbour(const std::string& lease, const std::string& report) {
  return {"--tenant", "loser=*/launch_neighbour.so@" + lease,
          "--tenant", "innocent=*/launch_neighbour_twin.so@private",
          "--report", report};
}

TEST_F(RunTest, PrivateContextThatTheProgramDestroysIsTold) {
  const auto ended =
      run_program(loser_and_neighbour("private", at("report.json")),
                  {"allocate-by=" + neighbour("launch_neighbour_twin"),
                   "allocate-by=" + neighbour(), "destroy-current", "use-by=" + neighbour()});
  EXPECT_EQ(ended.output, "allocate: 0\nallocate: 0\ndestroy: 0\nuse_again: 709\n");
  EXPECT_THAT(ended.errors, AllOf(ContainsRegex("loser on device 0, .*: its context was lost"),
                                  Not(HasSubstr("innocent"))));
  EXPECT_EQ(state_in(report(), "loser"), "lost");
  EXPECT_EQ(state_in(report(), "innocent"), "ready");
  EXPECT_THAT(records_in(report(), "lease"), ElementsAre(HasSubstr("was destroyed by somebody")));
}

TEST_F(RunTest, TenantThatBeginsAnewAfterALossHasANewLease) {
  const auto ended = run_program(
      loser_and_neighbour("private", at("report.json")),
      {"allocate-by=" + neighbour("launch_neighbour_twin"), "allocate-by=" + neighbour(),
       "destroy-current", "use-by=" + neighbour(), "reset-by=" + neighbour(),
       "allocate-by=" + neighbour(), "use-by=" + neighbour()});
  EXPECT_THAT(ended.output,
              HasSubstr("use_again: 709\nreset_device: 0\nallocate: 0\nuse_again: 0\n"));
  EXPECT_THAT(ended.errors, AllOf(HasSubstr("the broker recorded 1 error: loser: "),
                                  HasSubstr("was destroyed by somebody")));
  EXPECT_EQ(state_in(report(), "loser"), "ready");
  EXPECT_EQ(state_in(report(), "innocent"), "ready");
}

TEST_F(RunTest, FaultOfATenantIsTold) {
  for (const char* const lease : {"private", "green", "shared"}) {
    for (const char* const deed : {"fault-by", "fault-unseen-by"}) {
      const auto ended =
          run_program(loser_and_neighbour(lease, at("report.json")),
                      {"allocate-by=" + neighbour("launch_neighbour_twin"),
                       "allocate-by=" + neighbour(), std::string(deed) + "=" + neighbour()});
      EXPECT_THAT(ended.output, HasSubstr(": 700\n")) << lease << " " << deed;
      EXPECT_THAT(ended.errors,
                  AllOf(ContainsRegex("loser on device 0, .*: CUDA has ended in the process"),
                        ContainsRegex("innocent on device 0, .*: CUDA has ended in the process"),
                        HasSubstr("the broker recorded 1 error: "), HasSubstr("ILLEGAL_ADDRESS")))
          << lease << " " << deed;
      EXPECT_EQ(state_in(report(), "loser"), "ended") << lease << " " << deed;
      EXPECT_EQ(state_in(report(), "innocent"), "ended") << lease << " " << deed;
      EXPECT_EQ(records_in(report(), "fault").size(), 1U) << lease << " " << deed;
    }
  }
}

TEST_F(RunTest, CallsAfterAFaultAreNoNews) {
  const auto ended = run_program(
      loser_and_neighbour("private", at("report.json")),
      {"allocate-by=" + neighbour("launch_neighbour_twin"), "allocate-by=" + neighbour(),
       "fault-by=" + neighbour(), "allocate-by=" + neighbour(),
       "allocate-by=" + neighbour("launch_neighbour_twin"), "use-by=" + neighbour()});
  EXPECT_THAT(ended.output,
              HasSubstr("fault: 700\nallocate: 700\nallocate: 700\nuse_again: 700\n"));
  EXPECT_THAT(ended.errors, HasSubstr("the broker recorded 1 error: "));
  EXPECT_EQ(report().at("records").size(), 1U);
}

TEST_F(RunTest, TwoTenantsHaveLeasesOfTheirOwn) {
  run_program(
      {"--tenant", "one=*/launch_neighbour.so@private", "--tenant",
       "two=*/launch_neighbour_twin.so@shared", "--report", at("report.json")},
      {"use", "allocate-by=" + neighbour(), "allocate-by=" + neighbour("launch_neighbour_twin")});
  const auto json = report();
  EXPECT_THAT(lease_in(json, "one"), StartsWith("private"));
  EXPECT_THAT(lease_in(json, "two"), StartsWith("shared"));
  EXPECT_EQ(tenant_in(json, "one").at("held_bytes"), 4096);
}

TEST_F(RunTest, PatternsOfAPolicyFileAreFollowed) {
  write_bytes(folder / "p.json", R"({"schema": "ctxbroker.policy/1",
      "libraries": [{"match": "*/launch_neighbour.so", "tenant": "com.example.painter"}],
      "by_id": {"com.example.painter": {"lease": "private"}}})");
  run_program({"--policy", at("p.json"), "--report", at("report.json")},
              {"allocate-by=" + neighbour()});
  EXPECT_THAT(lease_in(report(), "com.example.painter"), StartsWith("private"));
}

TEST_F(RunTest, ReportSaysWhereATenantsMemoryComesFrom) {
  write_bytes(folder / "p.json", R"({"schema": "ctxbroker.policy/1",
      "for_all": {"memory": "driver"}, "by_id": {"one": {"memory": "pool"}}})");
  run_program({"--policy", at("p.json"), "--tenant", "one=*/launch_neighbour.so", "--tenant",
               "two=*/launch_neighbour_twin.so", "--report", at("report.json")},
              {"allocate-by=" + neighbour(), "allocate-by=" + neighbour("launch_neighbour_twin")});
  EXPECT_EQ(tenant_in(report(), "one").at("memory"), "pool");
  EXPECT_EQ(tenant_in(report(), "two").at("memory"), "driver");
}

TEST_F(RunTest, StrikeOfATenantIsTold) {
  const std::vector<std::string> deeds{"use", "allocate-by=" + neighbour(),
                                       "free-by=" + neighbour(), "look"};
  const auto ended = run_program(
      {"--tenant", "painter=*/launch_neighbour.so", "--report", at("report.json")}, deeds);
  EXPECT_THAT(ended.output, HasSubstr("memory: whole\n"));
  EXPECT_THAT(ended.errors,
              StartsWith("ctxb-run: painter broke the rules once. The first: cuMemFree_v2: "));
  EXPECT_EQ(tenant_in(report(), "painter").at("strikes"), 1);
  EXPECT_THAT(run_alone(deeds).output, HasSubstr("memory: DAMAGED\n"));
}

TEST_F(RunTest, PatternThatMatchesNothingIsToldAtExit) {
  const auto ended = run_program({"--tenant", "painter=*/no_such_library.so"}, {"use", "look"});
  EXPECT_EQ(ended.errors, "ctxb-run: the pattern */no_such_library.so has matched no library\n");
  EXPECT_EQ(run_program({"--tenant", "painter=*/no_such_library.so"}, {"print=x"}).errors, "");
}

// A wrapper calls no driver, and the program that it starts may lack all that the patterns are for.
TEST_F(RunTest, PatternThatMatchesNothingIsToldByAStartedProgram) {
  write_bytes(folder / "wrapper", "#!/bin/sh\n\"$@\"\nexit $?\n");
  std::filesystem::permissions(folder / "wrapper", std::filesystem::perms::owner_all);
  const auto ended = run({"--tenant", "painter=*/no_such_library.so", at("wrapper"), program(),
                          "use", "allocate-by=" + neighbour()});
  EXPECT_THAT(ended.errors, ContainsRegex("^ctxb-run\\[[0-9]+\\]: the pattern "
                                          "\\*/no_such_library\\.so has matched no library\n$"));
  const auto with_one =
      run({"--tenant", "painter=*/no_such_library.so", "--tenant", "sculptor=*/launch_neighbour.so",
           at("wrapper"), program(), "use", "allocate-by=" + neighbour()});
  EXPECT_EQ(with_one.errors, "") << "a started program need not have all libraries";
}

TEST_F(RunTest, PatternWhoseLibrariesAnEarlierOneTakesIsToldAsSuch) {
  const std::vector<std::string> deeds{"allocate-by=" + neighbour()};
  const auto ended = run_program({"--tenant", "one=*/launch_neigh*", "--tenant",
                                  "two=*/launch_neighbour.so", "--report", at("report.json")},
                                 deeds);
  EXPECT_EQ(ended.errors,
            "ctxb-run: the pattern */launch_neighbour.so gave two no library: the earlier pattern "
            "*/launch_neigh* gives what it matches to one\n");
  const auto json = report();
  EXPECT_THAT(json.at("unmatched_patterns"), ElementsAre());
  EXPECT_EQ(json.at("late_patterns"),
            nlohmann::json::parse(R"([{"pattern": "*/launch_neighbour.so", "tenant_name": "two",
                                       "taken_by": "*/launch_neigh*", "taken_for": "one"}])"));
  const auto same = run_program({"--tenant", "one=*/launch_neighbour.so", "--tenant",
                                 "two=*/launch_neighbour.so", "--report", at("report.json")},
                                deeds);
  EXPECT_THAT(same.errors, HasSubstr("*/launch_neighbour.so gave two no library"));
  EXPECT_THAT(report().at("unmatched_patterns"), ElementsAre()) << "one text stands for both";
}

TEST_F(RunTest, EachThatFindsOnlyWhatPatternsTookIsNotToldAsEmpty) {
  const auto ended = run_program(
      {"--tenant", "painter=*/launch_neighbour.so", "--each", "--report", at("report.json")},
      {"allocate-by=" + neighbour()});
  EXPECT_EQ(ended.errors, "");
  EXPECT_EQ(report().at("late_patterns").at(0).at("pattern"), "*");
  const auto empty = run_program({"--each", "--report", at("report.json")}, {"use"});
  EXPECT_EQ(empty.errors,
            "ctxb-run: no package brings CUDA code of its own, so none became a tenant\n")
      << "as a control";
}

TEST_F(RunTest, FirstOfTwoPatternsForOneLibraryCounts) {
  run_program({"--tenant", "one=*/launch_neighbour.so", "--tenant", "two=*/launch_*.so", "--report",
               at("report.json")},
              {"allocate-by=" + neighbour(), "allocate-by=" + neighbour("launch_neighbour_twin")});
  const auto json = report();
  EXPECT_EQ(json.at("libraries").at(0).at("tenant_name"), "one");
  EXPECT_EQ(json.at("libraries").at(1).at("tenant_name"), "two");
}

TEST_F(RunTest, EachMakesATenantOfEveryPackage) {
  namespace fs = std::filesystem;
  for (const char* package : {"painter", "sculptor"}) {
    fs::create_directories(folder / "site-packages" / package);
    fs::copy_file(neighbour(), folder / "site-packages" / package / "core.so");
  }
  const std::string painter = at("site-packages/painter/core.so");
  const auto ended = run_program(
      {"--each", "--report", at("report.json")},
      {"use", "allocate-by=" + painter, "allocate-by=" + at("site-packages/sculptor/core.so"),
       "reset-by=" + painter, "look"});
  EXPECT_THAT(ended.output, HasSubstr("reset_device: 0\nmemory: whole\n"));
  EXPECT_EQ(ended.errors, "");
  tenant_in(report(), "painter");
  tenant_in(report(), "sculptor");
}

TEST_F(RunTest, PackagesOfOneNameAreTwoTenants) {
  namespace fs = std::filesystem;
  std::vector<std::string> deeds{"use"};
  for (const char* place : {"one", "two"}) {
    fs::create_directories(folder / place / "site-packages" / "painter");
    const std::string file = at(std::string(place) + "/site-packages/painter/core.so");
    fs::copy_file(neighbour(), file);
    deeds.push_back("allocate-by=" + file);
  }
  EXPECT_EQ(run_program({"--each", "--report", at("report.json")}, deeds).errors, "");
  EXPECT_EQ(tenant_in(report(), "painter").at("held_bytes"), 4096);
  EXPECT_EQ(tenant_in(report(), "painter-2").at("held_bytes"), 4096);
}

TEST_F(RunTest, TenantWithoutALeaseIsTold) {
  const auto ended = run_program({"--tenant", "painter=*/launch_neighbour.so@green:100000"},
                                 {"allocate-by=" + neighbour()});
  EXPECT_THAT(ended.output, Not(HasSubstr("allocate: 0\n")));
  EXPECT_THAT(ended.errors, AllOf(StartsWith("ctxb-run: the broker recorded "),
                                  HasSubstr("painter: "), HasSubstr("100000")));
}

TEST_F(RunTest, BudgetThatIsUsedUpIsTold) {
  const auto with = [&](const std::string& budget) {
    write_bytes(
        folder / "p.json",
        R"({"schema": "ctxbroker.policy/1", "by_id": {"painter": {"driver_memory_budget": )" +
            budget + "}}}");
    return run_program({"--policy", at("p.json"), "--tenant", "painter=*/launch_neighbour.so"},
                       {"allocate-by=" + neighbour(), "allocate-by=" + neighbour()});
  };
  const auto ended = with("5000");
  EXPECT_EQ(ended.output, "allocate: 0\nallocate: 2\n");
  EXPECT_THAT(ended.errors,
              AllOf(StartsWith("ctxb-run: painter reached driver_memory_budget: "),
                    HasSubstr("may hold 5000 bytes of device memory"), HasSubstr("policy file")));
  EXPECT_EQ(with("10000").errors, "");
}

// The constructor's call is the process's first one, and the broker comes in it.
TEST_F(RunTest, LibraryThatCallsInItsConstructorIsATenant) {
  const std::string at_load = neighbour("launch_neighbour_at_load");
  const auto ended = run_program({"--tenant", "early=*_at_load.so", "--report", at("report.json")},
                                 {"open=" + at_load, "use", "reset-by=" + at_load, "look"});
  EXPECT_EQ(ended.output, "use: 0\nreset_device: 0\nmemory: whole\n");
  EXPECT_GE(tenant_in(report(), "early").at("guarded_calls").size(), 2);
}

TEST_F(RunTest, ProgramThatOpensABrokerKeepsItAndGetsThePatterns) {
  const auto path = std::filesystem::path(program()).parent_path() / "launch_embeds";
  for (const char* const children : {"--children=yes", "--children=no"}) {
    const auto ended = run({children, "--report", at("report.json"), "--tenant",
                            "added=*/launch_neighbour.so", "--tenant", "too_late=*_twin.so@private",
                            path.string(), neighbour(), neighbour("launch_neighbour_twin")});
    EXPECT_EQ(ended.exit_code, 0) << children;
    EXPECT_THAT(ended.output, StartsWith("allocate: 0\nallocate: 0\n"));
    EXPECT_THAT(ended.output, HasSubstr("added: */launch_neighbour.so\nits_own: *_twin.so\n"));
    EXPECT_THAT(ended.output, HasSubstr("its_own has shared\n"));
    // Its broker is not ctxb-run's, which therefore has nothing to report.
    EXPECT_FALSE(report().at("driver_called"));
  }
}

TEST_F(RunTest, CheckListsTheTenants) {
  const auto ended = run({"--check", "--tenant", "painter=*/a.so@private", "--each", program()});
  EXPECT_THAT(ended.output, HasSubstr("tenants    painter, lease private: */a.so\n           one "
                                      "for each package that brings CUDA code of its own, lease "
                                      "auto\n"));
}

TEST_F(RunTest, CheckNamesTenantsOfThePolicyThatNoPatternMakes) {
  write_bytes(folder / "p.json", R"({"schema": "ctxbroker.policy/1",
      "libraries": [{"match": "*/a.so", "tenant": "painter"}],
      "by_id": {"painter": {"lease": "private"}, "pianter": {"driver_memory_budget": 1}}})");
  const auto output = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"--check", "--policy", at("p.json")});
    options.push_back(program());
    return run(options).output;
  };
  EXPECT_THAT(output({}), AllOf(HasSubstr("the policy sets the tenant pianter, but no pattern"),
                                Not(HasSubstr("sets the tenant painter,"))));
  EXPECT_THAT(output({"--each"}), Not(HasSubstr("but no pattern"))) << "a package may be called so";
}

}  // namespace
}  // namespace ctxbroker::launch::test
