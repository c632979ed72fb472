// SPDX-License-Identifier: Apache-2.0
// Failures: the report that they leave, the name that they give, and what is said how often.
#include <gmock/gmock.h>

#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class FailureTest : public CommandTest {
 protected:
  static std::string library(const std::string& name) {
    return (program_folder().parent_path() / "test_plugins" / (name + ".so")).string();
  }
  json report() const { return json_at("report.json"); }
  std::vector<std::string> image(const std::string& plugin,
                                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"image",       png("in.png", 40, 3), "-o",
                                 at("out.png"), "--plugin",           plugin,
                                 "--json",      at("report.json")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Runs, and expects this code and a report of it.
  json failed(const std::vector<std::string>& arguments, ExitCode code, const std::string& kind,
              const Environment& environment = {}) const {
    const Ended ended = run(arguments, environment);
    EXPECT_EQ(ended.exit_code, static_cast<int>(code)) << ended.errors;
    json all = report();
    EXPECT_EQ(all["schema"], "ctxbroker.sample_host.report/1");
    EXPECT_EQ(all["success"], false);
    EXPECT_EQ(all["exit_code"], static_cast<int>(code));
    EXPECT_EQ(all["error"]["kind"], kind);
    EXPECT_THAT(ended.errors, HasSubstr(all["error"]["text"].get<std::string>()));
    return all;
  }
};

TEST_F(FailureTest, EachKindOfFailureLeavesAReport) {
  const json missing = failed(image(at("none.so")), ExitCode::plugin, "plugin");
  EXPECT_EQ(missing["command"], "image");
  EXPECT_EQ(missing["plugins"], json({at("none.so")}));
  EXPECT_EQ(missing["inputs"], json({at("in.png")}));
  EXPECT_EQ(missing["strikes"], json::array());
  failed(image(library("crashes") + ":wrong=1"), ExitCode::usage, "unknown-parameter");
  failed(image(test_plugin("process_fails")), ExitCode::plugin, "plugin-failed");
  failed(image(test_plugin("garbage_image")), ExitCode::kernel_image, "kernel-image");
  failed(image("exposure", {"--policy", at("no.json")}), ExitCode::usage, "policy");
  failed(image("exposure", {"--device", "7"}), ExitCode::driver, "driver");
  failed(
      {"image", at("no.png"), "-o", at("out.png"), "-p", "exposure", "--json", at("report.json")},
      ExitCode::input, "input");
  failed({"audio", at("no.wav"), "-o", at("out.wav"), "-p", "gain", "--json", at("report.json")},
         ExitCode::input, "input");
  failed({"image", at("in.png"), "-o", at("no/out.png"), "-p", "exposure", "--json",
          at("report.json")},
         ExitCode::output, "output");
}

TEST_F(FailureTest, ReportOfASuccessSaysSo) {
  run_well(image("exposure"));
  EXPECT_EQ(report()["success"], true);
  EXPECT_EQ(report()["exit_code"], 0);
}

// The software device names it. NVIDIA's driver does not notice an access so near to a buffer.
TEST_F(FailureTest, AFaultIsNamedWithItsLine) {
  const Environment software = {{"CTXBROKER_DRIVER", "software"}};
  const json all = failed(image(library("memory_faults") + ":access=write,offset=1024"),
                          ExitCode::plugin, "context-lost", software);
  EXPECT_EQ(all["error"]["library"], "memory_faults");
  EXPECT_THAT(all["error"]["text"].get<std::string>(),
              AllOf(HasSubstr("the work of plug-in memory_faults failed (kernel touch)"),
                    HasSubstr("0 bytes past the end of 4096 bytes at 0x"),
                    HasSubstr("of tenant memory_faults"), HasSubstr("memory_faults.cu:16"),
                    HasSubstr("leave the plug-in out, or report this to its author")));
  // The error of a sequence also names the frame.
  png("in.0001.png", 40, 3);
  const json frame =
      failed({"image", at("in.%04d.png"), "-o", at("out.%04d.png"), "--frames", "1", "--plugin",
              library("memory_faults") + ":access=write,offset=1024", "--json", at("report.json")},
             ExitCode::plugin, "context-lost", software);
  EXPECT_THAT(frame["error"]["text"].get<std::string>(),
              AllOf(HasSubstr("frame 1"), HasSubstr("memory_faults.cu:16")));
}

// Who watches exit codes need not know where the plug-in runs.
TEST_F(FailureTest, FaultHasOneExitCodeWithAndWithoutIsolation) {
  const std::vector<std::string> faulty = image(library("memory_faults") + ":access=write,null=1");
  std::vector<std::string> isolated = faulty;
  isolated.emplace_back("--isolate");
  failed(faulty, ExitCode::plugin, "context-lost");
  failed(isolated, ExitCode::plugin, "context-lost");
  const std::vector<std::string> late =
      image(library("behaviours") + "#com.example.test.lingers", {"--job-timeout", "30"});
  std::vector<std::string> late_isolated = late;
  late_isolated.emplace_back("--isolate");
  failed(late, ExitCode::plugin, "context-lost");
  failed(late_isolated, ExitCode::plugin, "context-lost");
}

// The report of a failure must not overwrite a file that is not a report.
TEST_F(FailureTest, ReportReplacesOnlyAnOlderReport) {
  const std::string input = png("in.png", 4, 4);
  const std::string before = read_bytes(input);
  EXPECT_NE(run({"image", input, "-o", at("out.png"), "-p", "no_such", "--json", input}).exit_code,
            0);
  EXPECT_EQ(read_bytes(input), before);
  failed(image(at("none.so")), ExitCode::plugin, "plugin");
  failed(image("exposure", {"--device", "7"}), ExitCode::driver, "driver");
  run_well(image("exposure"));
  EXPECT_EQ(report()["success"], true);
}

TEST_F(FailureTest, TheReportGoesToStandardOutputToo) {
  const Ended ended =
      run({"image", at("no.png"), "-o", at("out.png"), "-p", "blur", "--json", "-"});
  EXPECT_EQ(json::parse(ended.output)["error"]["kind"], "input");
}

TEST_F(FailureTest, AnInterruptLeavesAReport) {
  Start start;
  start.arguments = image(library("crashes"));
  start.environment = {{"CTXB_TEST_CRASH", "process:endless"}};
  start.interrupt_when = ".part";
  start.interrupt_folder = at("");
  const Ended ended = run_sample_host(start);
  EXPECT_EQ(ended.signal, SIGINT);
  const json all = report();
  EXPECT_EQ(all["exit_code"], 128 + SIGINT);
  EXPECT_EQ(all["error"]["kind"], "interrupted");
  EXPECT_EQ(all["error"]["signal"], "SIGINT");
  EXPECT_EQ(folder.names().size(), 2U) << "the input and the report";
}

TEST_F(FailureTest, ACrashNamesThePluginAndLeavesAReport) {
  Environment environment = signals_stay_signals;
  environment.emplace_back("CTXB_TEST_CRASH", "process:segv");
  const Ended ended = run(image(library("crashes")), environment);
  EXPECT_EQ(ended.signal, SIGSEGV);
  EXPECT_THAT(ended.errors, ContainsRegex("ctxbroker: plug-in com\\.example\\.test\\.crashes "
                                          "\\([^ ]*crashes\\.so\\) crashed in process on thread"));
  EXPECT_EQ(report()["error"]["signal"], "SIGSEGV");
  EXPECT_EQ(folder.names().size(), 2U) << "the input and the report";
  const Ended listed = run({"list", "--plugin-path", at("plugins")}, {{"CTXB_TEST_CRASH", "x:y"}});
  EXPECT_EQ(listed.signal, 0);
}

class HelperProcessTest : public FailureTest, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, HelperProcessTest,
                         testing::Values("fork_term", "fork_abort", "fork_segv", "fork_exit"),
                         [](const auto& test) { return std::string(test.param); });

// A process that a plug-in forks inherits the handlers. (It has the sanitizer's too, which looks
// for leaks at its exit, and writes about the host's threads, which it does not have.)
TEST_P(HelperProcessTest, ItsEndIsNotTheEndOfTheCommand) {
  Environment environment = signals_stay_signals;
  environment.emplace_back("LSAN_OPTIONS", "detect_leaks=0");
  environment.emplace_back("CTXB_TEST_CRASH", std::string("process:") + GetParam());
  run_well(image(library("crashes")), environment);
  EXPECT_EQ(report()["success"], true);
  EXPECT_EQ(folder.names().size(), 3U) << "the input, the output and the report";
}

TEST_F(FailureTest, APluginThatCallsExitIsNamedAndIsNoSuccess) {
  const Ended ended = run(image(library("crashes")), {{"CTXB_TEST_CRASH", "process:exit"}});
  EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::plugin));
  EXPECT_THAT(ended.errors,
              ContainsRegex("plug-in com\\.example\\.test\\.crashes \\([^ ]*crashes\\.so\\), in "
                            "process, ended the process with exit"));
  EXPECT_EQ(report()["exit_code"], static_cast<int>(ExitCode::plugin));
  EXPECT_EQ(report()["error"]["kind"], "plugin-failed");
  EXPECT_EQ(folder.names().size(), 2U) << "the input and the report";
}

// The paths and the permissions are meant as they were when the command began.
TEST_F(FailureTest, APluginThatChangesTheFolderOrTheUmaskChangesNoOutput) {
  Start start;
  start.arguments = {"image",         "in.png",           "-o",      "out.png",
                     "--plugin",      library("crashes"), "--json",  "r.json",
                     "--save-preset", "p.json",           "--trace", "t.json"};
  png("in.png", 40, 3);
  start.wrapper = "cd '" + at("") + "'; umask 027";
  for (const char* change : {"none", "chdir", "umask"}) {
    start.environment = {{"CTXB_TEST_CRASH", std::string("process:") + change}};
    const Ended ended = run_sample_host(start);
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
    EXPECT_EQ(folder.names().size(), 5U) << change;
    for (const char* name : {"out.png", "r.json", "t.json"}) {
      EXPECT_EQ(static_cast<int>(std::filesystem::status(folder / name).permissions()), 0640)
          << name << " after " << change;
      std::filesystem::remove(folder / name);
    }
    std::filesystem::remove(folder / "p.json");
  }
}

// The first one, and at the end how many there were.
TEST_F(FailureTest, StrikesAreShownOnceWithTheirNumber) {
  // Each of them leaves memory behind when it ends.
  std::vector<std::string> arguments{"image", png("in.png", 8, 8), "-o", at("out.png")};
  for (int i = 0; i < 20; ++i) {
    arguments.insert(arguments.end(), {"--plugin", library("behaviours") + "#leaks"});
  }
  const Ended ended = run(arguments);
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  const auto count = [](const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count(ended.errors, "[warning]"), 2U) << ended.errors;
  EXPECT_THAT(ended.errors,
              HasSubstr("broke the plug-in contract 20 times; report it to its author"));
  // The positive control: all that the broker tells.
  arguments.emplace_back("-v");
  EXPECT_GT(count(run(arguments).errors, "[warning]"), 2U);
}

TEST_F(FailureTest, ALongWaitIsSaidOnceWithItsPlugin) {
  Start start;
  start.arguments = image(library("crashes"));
  start.environment = {{"CTXB_TEST_CRASH", "process:sleep"}};
  const Ended ended = run_sample_host(start);
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_EQ(ended.errors, "sample_host: waiting for crashes (process) for 5 s\n");
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
