// SPDX-License-Identifier: Apache-2.0
// Without tenants: the shield, and what is told of it.
#include "run.hpp"
#include "support/test_library.hpp"

namespace ctxbroker::launch::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST_F(RunTest, ResetOfTheProgramIsRefused) {
  const auto ended = run_program({"--report", at("report.json")}, {"use", "reset", "look"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.output, "use: 0\nreset: 800\nmemory: whole\n");
  EXPECT_EQ(ended.errors,
            "ctxb-run: the driver refused cuDevicePrimaryCtxReset_v2 on device 0 "
            "once, from " +
                program() + "\n");
  const auto json = report();
  EXPECT_TRUE(json["finished"]);
  EXPECT_TRUE(json["driver_called"]);
  ASSERT_EQ(json["refused"].size(), 1);
  EXPECT_EQ(json.at("refused").at(0).at("function"), "cuDevicePrimaryCtxReset_v2");
  EXPECT_EQ(json.at("refused").at(0).at("library"), program());
  EXPECT_EQ(json.at("refused").at(0).at("count"), 1);
  EXPECT_EQ(json["gate"]["mode"], "before_driver");
  EXPECT_THAT(json["gate"]["tools"], IsEmpty());
  EXPECT_TRUE(json.at("devices").at(0).at("shield"));
}

TEST_F(RunTest, ResetDoesItsDamageWithoutCtxbRunAsAControl) {
  const auto ended = run_alone({"use", "reset", "look"});
  EXPECT_EQ(ended.output, "use: 0\nreset: 0\nmemory: DAMAGED\n");
}

TEST_F(RunTest, LastReleaseIsRefused) {
  const auto ended = run_program({"--report", at("report.json")}, {"use", "release", "look"});
  EXPECT_THAT(ended.output, HasSubstr("memory: whole\n"));
  EXPECT_THAT(run_alone({"use", "release", "look"}).output, HasSubstr("memory: DAMAGED\n"));
}

TEST_F(RunTest, RefusalNamesTheLibraryThatTried) {
  const auto ended =
      run_program({"--report", at("report.json")}, {"use", "reset-by=" + neighbour(), "look"});
  EXPECT_THAT(ended.output, HasSubstr("memory: whole\n"));
  EXPECT_THAT(ended.errors, HasSubstr("once, from " + neighbour() + "\n"));
  EXPECT_EQ(report().at("refused").at(0).at("library"), neighbour());
  EXPECT_THAT(run_alone({"use", "reset-by=" + neighbour(), "look"}).output,
              HasSubstr("memory: DAMAGED\n"));
}

TEST_F(RunTest, ProgramWithoutCudaRunsAsItDoesAlone) {
  const std::vector<std::string> deeds{"print=something", "complain=a complaint",
                                       "broker=" + own_library("ctxbroker_run.so"), "exit=7"};
  const auto ended = run_program({"--report", at("report.json")}, deeds);
  const auto alone = run_alone(deeds);
  EXPECT_EQ(ended.exit_code, 7);
  EXPECT_EQ(ended.output, alone.output);
  EXPECT_EQ(ended.errors, alone.errors);
  EXPECT_THAT(ended.output, HasSubstr("broker: not in the process\n"));
  const auto json = report();
  EXPECT_FALSE(json["driver_called"]);
  EXPECT_FALSE(json["finished"]);
  EXPECT_TRUE(json["driver"].is_null());
  EXPECT_THAT(json["command"], ElementsAre(program(), deeds[0], deeds[1], deeds[2], deeds[3]));
}

TEST_F(RunTest, BrokerIsInTheProcessAfterTheFirstCallAsAControl) {
  const auto ended = run_program({}, {"use", "broker=" + own_library("ctxbroker_run.so")});
  EXPECT_THAT(ended.output, HasSubstr("broker: in the process\n"));
}

TEST_F(RunTest, NothingIsPrintedIfNothingWasRefused) {
  EXPECT_EQ(run_program({}, {"use", "look"}).errors, "");
}

TEST_F(RunTest, VerboseAlwaysPrintsTheSummary) {
  const auto ended = run_program({"-v"}, {"use", "look"});
  EXPECT_THAT(ended.errors, HasSubstr(" driver "));
  EXPECT_THAT(ended.errors, HasSubstr("ctxb-run: nothing was refused or lost\n"));
}

TEST_F(RunTest, LogPrintsRecordsFromALevelOn) {
  const auto warnings = run_program({"--log", "warning"}, {"use", "reset"});
  EXPECT_THAT(warnings.errors, StartsWith("ctxb-run: warning: shield: device 0: the driver refused "
                                          "cuDevicePrimaryCtxReset_v2 from " +
                                          program()));
  EXPECT_THAT(run_program({"--log=info"}, {"use"}).errors, StartsWith("ctxb-run: info: driver: "));
  EXPECT_EQ(run_program({"--log=warning"}, {"use"}).errors, "");
}

TEST_F(RunTest, TraceIsWrittenAtExit) {
  run_program({"--trace", at("trace.json")}, {"use", "look"});
  EXPECT_TRUE(nlohmann::json::parse(read_bytes(folder / "trace.json")).contains("traceEvents"));
}

TEST_F(RunTest, FirstCallOnManyThreadsOpensOneBroker) {
  const auto ended =
      run_program({"--report", at("report.json")}, {"threads", "use", "reset", "look"});
  EXPECT_EQ(ended.output, "threads: 0\nuse: 0\nreset: 800\nmemory: whole\n");
  EXPECT_EQ(report().at("refused").at(0).at("count"), 1);
}

TEST_F(RunTest, FirstCallInAConstructorIsCovered) {
  const auto ended = run_program({"--report", at("report.json")},
                                 {"open=" + neighbour("launch_neighbour_at_load"), "use",
                                  "reset-by=" + neighbour("launch_neighbour_at_load"), "look"});
  EXPECT_EQ(ended.output, "use: 0\nreset_device: 800\nmemory: whole\n");
  EXPECT_TRUE(report().at("devices").at(0).at("shield"));
}

// The loader runs its constructor before that of ctxbroker_launch.so.
TEST_F(RunTest, FirstCallInAConstructorBeforeMainIsCovered) {
  const auto ended = run_program({"--report", at("report.json")}, {"use", "reset", "look"},
                                 {{"LD_PRELOAD", neighbour("launch_neighbour_at_load")}});
  EXPECT_EQ(ended.output, "use: 0\nreset: 800\nmemory: whole\n");
}

TEST_F(RunTest, DriverByItsOtherNameIsTheGate) {
  const auto ended = run_program({}, {"driver=libcuda.so", "use", "reset", "look"});
  EXPECT_EQ(ended.output, "use: 0\nreset: 800\nmemory: whole\n");
}

// --check says so.
TEST_F(RunTest, DriverByItsAbsolutePathIsNotHeld) {
  if (!driver_is_software()) GTEST_SKIP() << "knows the path of the software device only";
  const std::string path = (software_device_folder() / "libcuda.so.1").string();
  const auto ended = run_program({}, {"driver=" + path, "use", "reset", "look"});
  EXPECT_EQ(ended.output, "use: 0\nreset: 0\nmemory: DAMAGED\n");
}

TEST_F(RunTest, LongCommandLineIsPassedOn) {
  const std::vector<std::string> deeds(20'000, "nothing-to-do");
  EXPECT_EQ(run_program({}, deeds).exit_code, 0);
}

TEST_F(RunTest, ThePreloadedLibrariesOfTheUserStay) {
  const auto ended = run_program({}, {"variable=LD_PRELOAD", "variable=LD_LIBRARY_PATH"},
                                 {{"LD_PRELOAD", neighbour()}, {"LD_LIBRARY_PATH", "/somewhere"}});
  EXPECT_THAT(ended.output, AllOf(HasSubstr("ctxbroker_gate.so:" + neighbour() + "\n"),
                                  HasSubstr("/gate:/somewhere\n")));
}

TEST_F(RunTest, RunWithinARunHasTheInnerOptions) {
  const auto ended = run({"--report", at("outer.json"), ctxb_run(), "--report", at("report.json"),
                          program(), "use", "variable=LD_PRELOAD"});
  EXPECT_TRUE(report()["finished"]);
  EXPECT_FALSE(report("outer.json")["finished"]);
  const std::string gate = own_library("ctxbroker_gate.so");
  EXPECT_EQ(ended.output.find(gate), ended.output.rfind(gate));
}

}  // namespace
}  // namespace ctxbroker::launch::test
