// SPDX-License-Identifier: Apache-2.0
// How programs end, and what they do to their descriptors and folders before that.
#include <csignal>

#include "run.hpp"

namespace ctxbroker::launch::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(RunTest, ExitCodeIsTheProgramsOwn) {
  EXPECT_EQ(run_program({}, {"use", "exit=0"}).exit_code, 0);
  EXPECT_EQ(run_program({}, {"use", "exit=42"}).exit_code, 42);
  EXPECT_EQ(run_program({}, {"use", "reset", "exit=42"}).exit_code, 42);
}

TEST_F(RunTest, ExitBesideThreadsThatCallTheDriverEndsAndReports) {
  const auto ended = run_program({"--report", at("report.json")}, {"use", "exit-beside-threads"});
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_FALSE(ended.timed_out);
  EXPECT_TRUE(report()["finished"]);
}

TEST_F(RunTest, KilledProgramLeavesAReportThatSaysThatItDidNotFinish) {
  const auto ended = run_program({"--report", at("report.json")}, {"use", "reset", "kill"});
  EXPECT_EQ(ended.signal, SIGKILL);
  EXPECT_EQ(ended.errors, "");
  EXPECT_FALSE(report()["finished"]);
}

TEST_F(RunTest, ProgramThatEndsWithUnderscoreExitLeavesTheSame) {
  const auto ended = run_program({"--report", at("report.json")}, {"use", "reset", "_exit=5"});
  EXPECT_EQ(ended.exit_code, 5);
  EXPECT_FALSE(report()["finished"]);
}

TEST_F(RunTest, OlderReportDoesNotStay) {
  write_bytes(folder / "report.json", "an older one");
  run_program({"--report", at("report.json")}, {"kill"});
  EXPECT_FALSE(report()["finished"]);
}

TEST_F(RunTest, ClosedStandardErrorGetsNoSummary) {
  const auto ended = run_program({"--report", at("report.json")}, {"use", "reset", "close-errors"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.errors, "");
  EXPECT_EQ(report()["refused"].size(), 1);
}

TEST_F(RunTest, FileInThePlaceOfStandardErrorGetsNoSummary) {
  const auto ended = run_program({"--log", "info"}, {"close-errors", "open-file=" + at("file"),
                                                     "complain=the program's own", "use", "reset"});
  EXPECT_EQ(ended.errors, "");
  EXPECT_EQ(read_bytes(folder / "file"), "the program's own\n");
}

TEST_F(RunTest, FilesAreFoundAfterAChangeOfTheWorkingFolder) {
  std::filesystem::create_directory(folder / "inner");
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  run_program({"--report", "report.json", "--trace", "trace.json"},
              {"go-to=" + at("inner"), "use", "reset"});
  std::filesystem::current_path(here);
  EXPECT_THAT(folder.names(), ElementsAre("inner", "report.json", "trace.json"));
  EXPECT_TRUE(report()["finished"]);
}

TEST_F(RunTest, ProgramThatClearsItsEnvironmentIsCovered) {
  const auto ended =
      run_program({"--report", at("report.json"), "--driver=software"}, {"forget", "use", "reset"});
  EXPECT_EQ(ended.output, "use: 0\nreset: 800\n");
  EXPECT_TRUE(report()["finished"]);
}

TEST_F(RunTest, FolderOfTheReportThatIsGoneIsTold) {
  std::filesystem::create_directory(folder / "inner");
  const auto ended = run_program({"--trace", at("inner/trace.json")},
                                 {"use", "remove-folder=" + at("inner"), "exit=4"});
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_THAT(ended.errors, HasSubstr("ctxb-run: error: file \"" + at("inner/trace.json") +
                                      "\" cannot be written: "));
}

}  // namespace
}  // namespace ctxbroker::launch::test
