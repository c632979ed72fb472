// SPDX-License-Identifier: Apache-2.0
// --trace: the file that image and audio leave, and what stands in its way.
#include <fstream>
#include <map>

#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TraceCommand : public CommandTest {
 protected:
  // Spans of the trace, by category and tenant.
  std::map<std::pair<std::string, std::string>, std::uint64_t> counts(const std::string& name) {
    std::map<std::pair<std::string, std::string>, std::uint64_t> found;
    const nlohmann::json trace = json_at(name);
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X") continue;
      ++found[{event.at("cat"), event.at("args").at("tenant")}];
    }
    return found;
  }
};

class AnyTraceCommand : public TraceCommand, public ::testing::WithParamInterface<bool> {};

TEST_P(AnyTraceCommand, TraceHoldsTheLaunchesThatTheReportCounts) {
  const std::string in = png("in.png", 61, 45);
  std::vector<std::string> arguments{"image",    in,
                                     "-o",       at("out.png"),
                                     "--plugin", "exposure:stops=1",
                                     "--plugin", "blur:radius=2",
                                     "--trace",  at("trace.json"),
                                     "--json",   at("report.json")};
  if (GetParam()) arguments.emplace_back("--isolate");
  run_well(arguments);
  EXPECT_THAT(folder.names(), ElementsAre("in.png", "out.png", "report.json", "trace.json"));
  auto spans = counts("trace.json");
  const auto report = json_at("report.json");
  for (const auto& plugin : report.at("plugins")) {
    const std::string tenant = plugin.at("short_name");  // its library has the same name
    EXPECT_GT((spans[{"launch", tenant}]), 0U);
    EXPECT_EQ((spans[{"launch", tenant}]), plugin.at("launches"));
    EXPECT_EQ((spans[{"device", tenant}]), plugin.at("jobs"));
  }
  EXPECT_EQ((spans[{"job", "host"}]), 1U);
}

INSTANTIATE_TEST_SUITE_P(, AnyTraceCommand, ::testing::Bool(), [](const auto& isolated) {
  return isolated.param ? "in_worker" : "in_host";
});

TEST_F(TraceCommand, TraceHoldsEveryBlockOfARecording) {
  const std::string in = wav("in.wav", 5000);
  run_well({"audio", in, "-o", at("out.wav"), "--block", "64", "--plugin", "gain", "--plugin",
            "delay", "--trace", at("trace.json"), "--json", at("report.json")});
  auto spans = counts("trace.json");
  const std::uint64_t blocks = json_at("report.json").at("plugins").at(0).at("jobs");
  EXPECT_EQ(blocks, 79U);
  EXPECT_EQ((spans[{"job", "host"}]), blocks);
  EXPECT_EQ((spans[{"device", "gain"}]), blocks);
  EXPECT_EQ((spans[{"device", "delay"}]), blocks);
  EXPECT_EQ(json_at("trace.json").at("otherData").at("dropped"), 0);
}

TEST_F(TraceCommand, UnwritableTraceIsRefusedBeforeTheWork) {
  const std::string in = png("in.png", 8, 8);
  // An older report, which those of the failures replace.
  std::ofstream(at("report.json")) << R"({"schema": "ctxbroker.sample_host.report/1"})";
  const auto with = [&](const std::string& trace) {
    Start start;
    start.arguments = {"image",    in,         "-o",     at("out.png"),
                       "--plugin", "exposure", "--json", at("report.json"),
                       "--trace",  trace};
    return start;
  };
  expect_error(with(at("no/such/trace.json")), ExitCode::output,
               {"no/such", "No such file or directory"});
  std::filesystem::create_directory(folder / "taken");
  expect_error(with(at("taken")), ExitCode::output, {"taken", "folder"});
  expect_error(with(at("out.png")), ExitCode::usage, {"--trace", "out.png"});
  expect_error(with(at("report.json")), ExitCode::usage, {"--trace", "report.json"});
  expect_error(with(in), ExitCode::usage, {"--trace", "in.png"});
}

TEST_F(TraceCommand, AFailedRunLeavesNoTrace) {
  png("in.png", 8, 8);
  Start start;
  start.arguments = {"image",       at("in.png"),    "-o",
                     at("out.png"), "--plugin",      test_plugin("process_fails"),
                     "--trace",     at("trace.json")};
  expect_error(start, ExitCode::plugin, {});
}

TEST_F(TraceCommand, AFullDiskLeavesNoHalfTrace) {
  png("in.png", 8, 8);
  Start start;
  // The image has less than one block of 512 bytes, the trace more.
  start.wrapper = "ulimit -f 1";
  start.arguments = {"image",       at("in.png"),    "-o",
                     at("out.png"), "--plugin",      test_plugin("passes_on"),
                     "--trace",     at("trace.json")};
  const Ended ended = run_sample_host(start);
  EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::output)) << ended.errors;
  EXPECT_THAT(ended.errors, HasSubstr("trace.json"));
  EXPECT_THAT(ended.errors, HasSubstr("File too large"));
  EXPECT_THAT(folder.names(), ElementsAre("in.png", "out.png"));
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
