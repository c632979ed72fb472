// SPDX-License-Identifier: Apache-2.0
// Programs that the program starts, processes that it forks, and programs that it becomes.
#include <filesystem>

#include "run.hpp"

namespace ctxbroker::launch::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::UnorderedElementsAre;

TEST_F(RunTest, StartedProgramIsCoveredAndReportsToAFileOfItsOwn) {
  const auto ended = run_program({"--report", at("report.json")},
                                 {"use", "start=use,reset,look", "reset", "look"});
  EXPECT_EQ(ended.output,
            "use: 0\nuse: 0\nreset: 800\nmemory: whole\nchild: 0\nreset: 800\nmemory: whole\n");
  EXPECT_THAT(ended.errors, ContainsRegex("ctxb-run\\[[0-9]+\\]: the driver refused"));
  EXPECT_THAT(ended.errors, HasSubstr("ctxb-run: the driver refused"));
  EXPECT_THAT(folder.names(),
              UnorderedElementsAre("report.json", MatchesRegex("report\\.[0-9]+\\.json")));
  const auto first = report();
  EXPECT_EQ(first["pid"], first["first_pid"]);
  for (const std::string& name : folder.names()) {
    const auto json = report(name);
    EXPECT_EQ(json.at("refused").at(0).at("count"), 1) << name;
    EXPECT_EQ(json["first_pid"], first["pid"]) << name;
  }
}

TEST_F(RunTest, StartedProgramWithoutCudaWritesNoReport) {
  run_program({"--report", at("report.json")}, {"use", "start=print=nothing"});
  EXPECT_THAT(folder.names(), ElementsAre("report.json"));
}

TEST_F(RunTest, StartedProgramIsNotCoveredWithoutChildren) {
  const std::vector<std::string> deeds{
      "use", "reset", "look", "start=use,reset,look,broker=" + own_library("ctxbroker_run.so")};
  const auto ended = run_program({"--children=no", "--report", at("report.json")}, deeds);
  EXPECT_EQ(ended.output,
            "use: 0\nreset: 800\nmemory: whole\n"
            "use: 0\nreset: 0\nmemory: DAMAGED\nbroker: not in the process\nchild: 0\n");
  EXPECT_THAT(folder.names(), ElementsAre("report.json"));
  EXPECT_EQ(run_program({}, deeds).output,
            "use: 0\nreset: 800\nmemory: whole\n"
            "use: 0\nreset: 800\nmemory: whole\nbroker: in the process\nchild: 0\n")
      << "as a control";
}

TEST_F(RunTest, StartedProgramHasNothingOfUsInItsEnvironmentWithoutChildren) {
  const auto ended =
      run_program({"--children=no"},
                  {"start=variable=LD_PRELOAD,variable=LD_LIBRARY_PATH,variable=CTXBROKER_RUN,"
                   "start=broker=" +
                   own_library("ctxbroker_launch.so")},
                  {{"LD_LIBRARY_PATH", "/somewhere"}});
  EXPECT_EQ(ended.output,
            "LD_PRELOAD=(unset)\nLD_LIBRARY_PATH=/somewhere\nCTXBROKER_RUN=(unset)\n"
            "broker: not in the process\nchild: 0\nchild: 0\n");
}

TEST_F(RunTest, ForkedProcessIsNotCoveredWithoutChildren) {
  const auto ended =
      run_program({"--children=no", "--report", at("report.json")}, {"fork=use,reset,look"});
  EXPECT_EQ(ended.output, "use: 0\nreset: 0\nmemory: DAMAGED\nchild: 0\n");
  EXPECT_FALSE(report()["driver_called"]);
  EXPECT_EQ(run_program({}, {"fork=use,reset,look"}).output,
            "use: 0\nreset: 800\nmemory: whole\nchild: 0\n")
      << "as a control";
}

// The process stays the same one, whichever program it becomes.
TEST_F(RunTest, ProgramThatTheFirstProcessBecomesIsCoveredWithoutChildren) {
  const std::string covered = "use: 0\nreset: 800\nmemory: whole\n";
  EXPECT_EQ(run_program({"--children=no"}, {"exec=use,reset,look"}).output, covered);
  EXPECT_EQ(run({"--children=no", "/usr/bin/env", program(), "use", "reset", "look"}).output,
            covered);
  write_bytes(folder / "by_env", "#!/usr/bin/env " + program() + "\n");
  std::filesystem::permissions(folder / "by_env", std::filesystem::perms::owner_all);
  EXPECT_EQ(run({"--children=no", at("by_env"), "use", "reset", "look"}).output, covered);
  write_bytes(folder / "wrapper", "#!/bin/sh\nexec \"$@\"\n");
  std::filesystem::permissions(folder / "wrapper", std::filesystem::perms::owner_all);
  EXPECT_EQ(run({"--children=no", "--report", at("report.json"), at("wrapper"), at("by_env"), "use",
                 "reset", "look"})
                .output,
            covered);
  EXPECT_TRUE(report()["finished"]);
}

// bash has functions getenv and unsetenv of its own.
TEST_F(RunTest, ProgramWithAnEnvironmentOfItsOwnLeavesNothingOfUsToItsPrograms) {
  if (!std::filesystem::exists("/bin/bash")) GTEST_SKIP() << "no bash";
  const std::string print = "env | grep -E 'lib/ctxbroker|CTXBROKER_RUN' || echo nothing";
  EXPECT_EQ(run({"--children=no", "/bin/bash", "-c", print}).output, "nothing\n");
  EXPECT_THAT(run({"/bin/bash", "-c", print}).output, HasSubstr("CTXBROKER_RUN={"));
}

TEST_F(RunTest, OtherPreloadedLibrariesStayWithoutChildren) {
  const auto ended =
      run_program({"--children=no"}, {"start=variable=LD_PRELOAD"}, {{"LD_PRELOAD", neighbour()}});
  EXPECT_EQ(ended.output, "LD_PRELOAD=" + neighbour() + "\nchild: 0\n");
}

// CUDA does not survive a fork, in this process as in any other.
TEST_F(RunTest, ForkedProcessHasTheDriversAnswerAndWritesNoReport) {
  const auto ended = run_program({"--report", at("report.json")}, {"use", "fork", "reset", "look"});
  EXPECT_EQ(ended.output, "use: 0\nuse: 3\nchild: 0\nreset: 800\nmemory: whole\n");
  EXPECT_THAT(folder.names(), ElementsAre("report.json"));
  EXPECT_EQ(run_alone({"use", "fork"}).output, "use: 0\nuse: 3\nchild: 0\n");
}

TEST_F(RunTest, ForkedProcessThatIsTheFirstToUseCudaIsCovered) {
  const auto ended = run_program({"--report", at("report.json")}, {"fork", "use", "look"});
  EXPECT_EQ(ended.output, "use: 0\nchild: 0\nuse: 0\nmemory: whole\n");
  EXPECT_THAT(folder.names(),
              UnorderedElementsAre("report.json", MatchesRegex("report\\.[0-9]+\\.json")));
}

// The first image ends without its exit functions. The report is that of the last one.
TEST_F(RunTest, ProgramThatBecomesAnotherIsCoveredAndReportsTheLastImage) {
  const auto ended =
      run_program({"--report", at("report.json")}, {"use", "reset", "exec=use,look"});
  EXPECT_EQ(ended.output, "use: 0\nreset: 800\nuse: 0\nmemory: whole\n");
  EXPECT_THAT(folder.names(), ElementsAre("report.json"));
  EXPECT_TRUE(report()["finished"]);
  EXPECT_TRUE(report()["refused"].empty());
}

// --check and the documentation say so.
TEST_F(RunTest, ProgramThatReplacesThePreloadedLibrariesLosesItsChildren) {
  const std::string look = "start=broker=" + own_library("ctxbroker_launch.so");
  const auto ended = run_program({}, {"set-preload=" + neighbour(), look});
  EXPECT_THAT(ended.output, HasSubstr("broker: not in the process\n"));
}

TEST_F(RunTest, ScriptIsRunByItsInterpreterAndItsProgramsAreCovered) {
  write_bytes(folder / "script", "#!/bin/sh\n\"$@\"\necho \"status $?\"\n");
  std::filesystem::permissions(folder / "script", std::filesystem::perms::owner_all);
  const auto ended =
      run({"--report", at("report.json"), at("script"), program(), "use", "reset", "look"});
  EXPECT_EQ(ended.output, "use: 0\nreset: 800\nmemory: whole\nstatus 0\n");
  EXPECT_THAT(ended.errors, HasSubstr("refused"));
  EXPECT_EQ(folder.names().size(), 3);
}

}  // namespace
}  // namespace ctxbroker::launch::test
