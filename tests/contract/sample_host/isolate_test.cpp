// SPDX-License-Identifier: Apache-2.0
// sample_host with --isolate: the same files, and a crash costs a message instead of the command.
#include <csignal>

#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::HasSubstr;

class IsolateCommand : public CommandTest {
 protected:
  // Runs it in this process, in a worker, and in a worker for each plug-in; `made` must be the
  // same.
  void same(std::vector<std::string> arguments, const std::vector<std::string>& made) const {
    run_well(arguments);
    std::vector<std::string> bytes;
    for (const std::string& name : made) {
      bytes.push_back(read_bytes(folder / name));
      std::filesystem::remove(folder / name);
    }
    arguments.emplace_back();
    for (const char* isolate : {"--isolate=each-instance", "--isolate=in-host", "--isolate"}) {
      arguments.back() = isolate;
      run_well(arguments);
      for (std::size_t i = 0; i < made.size(); ++i) {
        EXPECT_EQ(read_bytes(folder / made[i]), bytes[i]) << isolate << ' ' << made[i];
        std::filesystem::remove(folder / made[i]);
      }
    }
  }
  std::string file(const std::string& name, const std::string& text) const {
    write_bytes(folder / name, text);
    return at(name);
  }
  static std::string deaths(const std::string& way) {
    return (program_folder().parent_path() / "test_plugins" / "deaths.so").string() + ":way=" + way;
  }
};

TEST_F(IsolateCommand, IsolatedPicturesAreTheSame) {
  png("in.png", 70, 50);
  same({"image", at("in.png"), "-o", at("row.png"), "--plugin", "exposure:stops=0.5", "--plugin",
        "blur:radius=3", "--json", at("report.json")},
       {"row.png"});
  const nlohmann::json report = json_at("report.json");
  EXPECT_EQ(report["plugins"][1]["short_name"], "blur");
  EXPECT_EQ(report["plugins"][1]["parameters"]["radius"], 3);
  EXPECT_EQ(report["plugins"][1]["jobs"], 1);
  EXPECT_FALSE(report["driver"]["kind"].get<std::string>().empty());
  EXPECT_EQ(report["leases"][1]["tenant"], "blur");
  EXPECT_GT(report["leases"][1]["memory_bytes"], 0);

  same({"image", at("in.png"), "-o", at("tiles.png"), "--plugin", "blur:radius=3", "--tile",
        "32x16", "--jobs", "3"},
       {"tiles.png"});
}

TEST_F(IsolateCommand, IsolatedProcessIsOutsideTheHostsMpsServer) {
  png("in.png", 4, 4);
  const Environment environment{{"CTXBROKER_SOFTWARE_MPS", "/run/own"},
                                {"CUDA_MPS_PIPE_DIRECTORY", "/run/own"}};
  std::vector<std::string> arguments{"image",    at("in.png"), "-o",     at("out.png"),
                                     "--plugin", "exposure",   "--json", at("report.json")};
  EXPECT_EQ(run(arguments, environment).exit_code, 0);
  if (json_at("report.json")["driver"]["kind"] != "software") {
    GTEST_SKIP() << "only the software device plays a client of MPS";
  }
  EXPECT_EQ(json_at("report.json")["devices"][0]["mps"], true);
  arguments.emplace_back("--isolate");
  run_well(arguments, environment);
  EXPECT_EQ(json_at("report.json")["devices"][0]["mps"], false);
}

TEST_F(IsolateCommand, IsolatedSequencesAreTheSame) {
  for (const char* name : {"in.1.png", "in.2.png", "in.3.png", "in.4.png"}) png(name, 40, 30);
  const std::string automation = file("a.csv", "1,exposure.stops,0\n4,exposure.stops,3\n");
  const std::vector<std::string> made{"out.1.png", "out.2.png", "out.3.png", "out.4.png"};
  std::vector<std::string> arguments{"image",    at("in.%d.png"), "-o",           at("out.%d.png"),
                                     "--frames", "1-4",           "--jobs",       "2",
                                     "--plugin", "exposure",      "--automation", automation};
  png("in.3.png", 60, 30);  // larger: everything is activated anew
  same(arguments, made);
  png("in.3.png", 40, 30);
  arguments.insert(arguments.end(), {"--plugin", "time_blur"});  // needs the frames around
  same(arguments, made);
}

TEST_F(IsolateCommand, IsolatedSoundIsTheSame) {
  wav("in.wav", 30000);
  const std::string graph = file("g.json", R"({"schema": "ctxbroker.graph/1",
      "inputs": {"i": {}}, "outputs": {"o": {}},
      "nodes": {"quiet": {"plugin": "gain"}, "low": {"plugin": "fir", "parameters": {"taps": 99}},
                "desk": {"plugin": "mix"}},
      "edges": [{"from": "i", "to": "quiet"}, {"from": "quiet", "to": "low"},
                {"from": "low", "to": "desk.in_1"}, {"from": "quiet", "to": "desk.in_2"},
                {"from": "desk", "to": "o"}]})");
  const std::string automation =
      file("a.csv", "0,quiet.gain_db,0\n0.1,quiet.gain_db,-20,0.2\n0.4,quiet.mute,on\n");
  for (const char* jobs : {"1", "4"}) {
    same({"audio", at("in.wav"), "-o", at("out.wav"), "--graph", graph, "--automation", automation,
          "--tail", "0.05", "--jobs", jobs},
         {"out.wav"});
  }
}

TEST_F(IsolateCommand, PresetsOfIsolatedPluginsAreTheSame) {
  wav("in.wav", 3000);
  run_well({"audio", at("in.wav"), "-o", at("x.wav"), "--plugin", "fir:cutoff=500,taps=33",
            "--save-preset", at("here.json")});
  run_well({"audio", at("in.wav"), "-o", at("x.wav"), "--plugin", "fir:cutoff=500,taps=33",
            "--save-preset", at("there.json"), "--isolate"});
  EXPECT_EQ(read_bytes(folder / "there.json"), read_bytes(folder / "here.json"));
  same({"audio", at("in.wav"), "-o", at("out.wav"), "--plugin", "fir", "--preset", at("here.json")},
       {"out.wav"});
}

// They have a copy of NVIDIA's libraries in each process. Without NVIDIA's driver, the error is the
// same as in this process.
TEST_F(IsolateCommand, IsolatedPluginsOnTheRuntimeLibraryGiveTheSame) {
  for (const char* name : {"colour_grading", "histogram_equalisation", "convolution_reverb"}) {
    if (!exists(program_folder().parent_path() / "plugins" / (std::string(name) + ".so"))) {
      GTEST_SKIP() << name << " is not built: the CUDA Toolkit lacks a library";
    }
  }
  png("in.png", 70, 50, 16);
  wav("in.wav", 9000);
  const std::vector<std::string> pictures{
      "image",    at("in.png"), "-o",       at("out.png"),
      "--plugin", "exposure",   "--plugin", "colour_grading:hue=40,saturation=1.25",
      "--plugin", "blur",       "--plugin", "histogram_equalisation:amount=1"};
  const std::vector<std::string> sound{"audio",    at("in.wav"),
                                       "-o",       at("out.wav"),
                                       "--plugin", "gain:gain_db=-6",
                                       "--plugin", "convolution_reverb:time=0.25,mix=0.4",
                                       "--tail",   "0.1"};
  run_well(
      {"image", at("in.png"), "-o", at("o.png"), "--plugin", "exposure", "--json", at("r.json")});
  if (json_at("r.json")["driver"]["kind"] != "software") {
    same(pictures, {"out.png"});
    same(sound, {"out.wav"});
    return;
  }
  for (std::vector<std::string> arguments : {pictures, sound}) {
    const std::string error = run(arguments).errors;
    arguments.emplace_back();
    for (const char* isolate : {"--isolate", "--isolate=each-instance", "--isolate=in-host"}) {
      arguments.back() = isolate;
      Start start;
      start.arguments = arguments;
      expect_error(start, ExitCode::needs_gpu, {"cannot be used here: it needs a GPU"});
      EXPECT_EQ(run(arguments).errors, error) << isolate;
    }
  }
  GTEST_SKIP() << "only the refusal was looked at: these plug-ins need NVIDIA's driver";
}

// Each process has a broker, and the report tells of all of them.
TEST_F(IsolateCommand, TheReportTellsOfAllProcesses) {
  png("in.png", 16, 16);
  run_well({"image", at("in.png"), "-o", at("out.png"), "--plugin", "exposure", "--plugin", "blur",
            "--plugin", "exposure", "--json", at("report.json"), "--isolate=each-instance"});
  const nlohmann::json report = json_at("report.json");
  EXPECT_EQ(report["leases"].size(), 3U);
  for (const nlohmann::json& plugin : report["plugins"]) EXPECT_EQ(plugin["jobs"], 1);
  std::vector<std::string> tenants;
  for (const nlohmann::json& tenant : report["metrics"]["tenants"])
    tenants.push_back(tenant["name"]);
  EXPECT_EQ(std::count(tenants.begin(), tenants.end(), "exposure"), 2);
}

TEST_F(IsolateCommand, ACrashIsAMessageWithTheName) {
  png("in.png", 16, 16);
  for (const auto& [way, text] :
       {std::pair("segv", "signal 11 (SIGSEGV)"), std::pair("quiet_exit", "exit status 0"),
        std::pair("endless", "did not end within 2200 ms")}) {
    for (const char* isolate : {"--isolate", "--isolate=each-instance"}) {
      Start start;
      start.arguments = {"image",         at("in.png"), "-o",       at("out.png"),
                         "--plugin",      "exposure",   "--plugin", deaths(way),
                         "--job-timeout", "200",        isolate};
      start.environment = signals_stay_signals;
      expect_error(
          start, ExitCode::plugin,
          {text, "in process of plug-in com.example.test.deaths", "leave the plug-in out"});
    }
  }
  // The positive control: here, the command crashes.
  EXPECT_EQ(run({"image", at("in.png"), "-o", at("out.png"), "--plugin", deaths("segv")},
                signals_stay_signals)
                .signal,
            SIGSEGV);
}

// A fault is noticed when another frame is submitted or waited for.
TEST_F(IsolateCommand, FaultNamesTheFrameWithAndWithoutIsolation) {
  for (int frame = 1; frame <= 8; ++frame) png("in." + std::to_string(frame) + ".png", 40, 30);
  const std::string hostile =
      (program_folder().parent_path() / "test_plugins" / "hostile.so").string();
  std::vector<std::string> arguments{
      "image",        at("in.%d.png"),
      "-o",           at("out.%d.png"),
      "--frames",     "1-8",
      "--plugin",     "exposure",
      "--plugin",     hostile,
      "--automation", file("a.csv", "4,hostile.kernel,address\n5,hostile.kernel,none\n")};
  const auto error_with = [&](const char* jobs, bool isolated) {
    std::vector<std::string> all = arguments;
    all.insert(all.end(), {"--jobs", jobs});
    if (isolated) all.emplace_back("--isolate");
    const Ended ended = run(all);
    EXPECT_EQ(ended.exit_code, static_cast<int>(ExitCode::plugin)) << ended.errors;
    return ended.errors;
  };
  for (const bool isolated : {false, true}) {
    EXPECT_THAT(error_with("1", isolated), HasSubstr("error: frame 4: "));
    const std::string error = error_with("4", isolated);
    EXPECT_THAT(error, HasSubstr("at position 4"));
    EXPECT_THAT(error,
                testing::ContainsRegex("error: (frame 4|one of the frames [1-4] to [4-8]): "));
  }
}

// The user trusts all plug-ins but one.
TEST_F(IsolateCommand, APolicyIsolatesOnePlugin) {
  png("in.png", 16, 16);
  const std::string policy = file("policy.json", R"({"schema": "ctxbroker.policy/1", "by_id": {
      "com.example.test.deaths": {"process": "each-instance"}}})");
  const auto with = [&](const char* way) {
    return std::vector<std::string>{
        "image",    at("in.png"), "-o",        at("out.png"),     "--plugin",
        "exposure", "--plugin",   deaths(way), "--plugin",        "exposure",
        "--policy", policy,       "--json",    at("report.json"), "--isolate=in-host"};
  };
  run_well(with("none"));
  const nlohmann::json report = json_at("report.json");
  ASSERT_EQ(report["leases"].size(), 2U);  // both exposures are of one tenant in this process
  Start start;
  start.arguments = with("segv");
  start.environment = signals_stay_signals;
  expect_error(start, ExitCode::plugin, {"in process of plug-in com.example.test.deaths"});
}

TEST_F(IsolateCommand, ThePluginFindsTheVariablesOfTheCommand) {
  png("in.png", 16, 16);
  Start start;
  start.arguments = {"image",    at("in.png"),
                     "-o",       at("out.png"),
                     "--plugin", (program_folder().parent_path() / "test_plugins" / "crashes.so"),
                     "--isolate"};
  start.environment = {{"CTXB_TEST_CRASH", "process:segv"}};
  expect_error(start, ExitCode::plugin, {"in process of plug-in com.example.test.crashes"});
}

TEST_F(IsolateCommand, ACrashAtTheEndIsAWarning) {
  png("in.png", 16, 16);
  const Ended ended =
      run({"image", at("in.png"), "-o", at("out.png"), "--plugin",
           program_folder().parent_path() / "test_plugins" / "crashes.so", "--isolate"},
          {{"CTXB_TEST_CRASH", "deactivate:abort"}});
  EXPECT_EQ(ended.exit_code, 0) << ended.errors;
  EXPECT_THAT(ended.errors,
              HasSubstr("SIGABRT) in deactivate of plug-in com.example.test.crashes"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out.png"));
}

TEST_F(IsolateCommand, UnsupportedOptionsWithIsolateAreUsageErrors) {
  png("in.png", 16, 16);
  const auto refused = [&](std::vector<std::string> arguments, ExitCode code,
                           const std::vector<std::string>& parts) {
    Start start;
    start.arguments = {"image", at("in.png"), "-o", at("out.png"), "--isolate"};
    start.arguments.insert(start.arguments.end(), arguments.begin(), arguments.end());
    expect_error(start, code, parts);
  };
  refused({"--plugin", "exposure", "--isolate=alone"}, ExitCode::usage, {"alone", "each-instance"});
  refused(
      {"--plugin", "exposure", "--plugin", "blur", "--isolate=by-plug-in", "--trace", at("t.json")},
      ExitCode::usage, {"--trace", "in 2", "--isolate=together"});
  refused({"--plugin", "nobody"}, ExitCode::plugin, {"there is no plug-in \"nobody\""});
  refused({"--plugin", "exposure:stops=x"}, ExitCode::usage, {"stops", "a number from -16"});
  refused({"--plugin", "exposure:nobody=1"}, ExitCode::usage, {"no parameter \"nobody\""});
  refused({"--plugin", "gain"}, ExitCode::usage, {"is for audio"});
  refused({"--plugin", test_plugin("init_fails")}, ExitCode::plugin, {"init_fails"});
  refused({"--plugin", test_plugin("process_fails")}, ExitCode::plugin, {"process"});
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
