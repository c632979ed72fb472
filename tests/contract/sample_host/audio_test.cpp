// SPDX-License-Identifier: Apache-2.0
#include <sndfile.h>

#include <algorithm>
#include <cmath>

#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

class AudioCommand : public CommandTest {};

TEST_F(AudioCommand, GainOfMinusSixDecibelsScalesTheSamples) {
  std::vector<float> samples(1000);
  for (int i = 0; i < 1000; ++i) {
    samples[static_cast<std::size_t>(i)] = static_cast<float>(i - 500) / 1000;
  }
  write_float_audio(folder / "in.wav", SF_FORMAT_WAV | SF_FORMAT_FLOAT, 2, samples);
  run_well(
      {"audio", at("in.wav"), "-o", at("out.wav"), "--plugin", "gain:gain_db=-6", "--block", "64"});
  const std::vector<float> out = read_float_audio(folder / "out.wav");
  ASSERT_EQ(out.size(), samples.size());
  const double factor = std::pow(10, -6 / 20.0);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    EXPECT_NEAR(out[i], static_cast<double>(samples[i]) * factor, 1e-5) << i;
  }
}

TEST_F(AudioCommand, ZeroDecibelsChangeNoSample) {
  for (const int channels : {1, 2, 6}) {
    const std::string in = wav("in.wav", 1001, channels);
    run_well({"audio", in, "-o", at("out.wav"), "--plugin", "gain:gain_db=0", "--block", "100"});
    EXPECT_EQ(read_raw_audio(folder / "out.wav").samples, read_raw_audio(in).samples);
    EXPECT_EQ(read_raw_audio(folder / "out.wav").channels, channels);
  }
}

TEST_F(AudioCommand, BlocksAndLeasesDoNotChangeTheSound) {
  const std::string in = wav("in.wav", 3000);
  const auto make = [&](const std::string& name, const char* block, const char* lease) {
    run_well({"audio", in, "-o", at(name), "--plugin", "gain:gain_db=-3", "--plugin", "equaliser",
              "--plugin", "fir", "--plugin", "delay", "--block", block, "--lease", lease});
    return read_bytes(folder / name);
  };
  const std::string whole = make("whole.wav", "65536", "shared");
  EXPECT_EQ(make("a.wav", "256", "shared"), whole);
  EXPECT_EQ(make("b.wav", "1000", "private"), whole);
  EXPECT_EQ(make("c.wav", "77", "private"), whole);
}

TEST_F(AudioCommand, GraphsDoNotChangeTheSound) {
  const std::string in = wav("in.wav", 3000);
  const auto make = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments{"audio",    in,          "-o",       at(name + ".wav"),
                                       "--plugin", "equaliser", "--plugin", "delay",
                                       "--json",   at(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    run_well(arguments);
    return read_bytes(folder / (name + ".wav"));
  };
  EXPECT_EQ(make("graphs", {"--graphs"}), make("plain", {}));
  for (const char* name : {"graphs", "plain"}) {
    const nlohmann::json report = json_at(name);
    for (const auto& plugin : report.at("plugins")) {
      const bool all = plugin.at("graph_jobs") == plugin.at("jobs");
      EXPECT_EQ(all, std::string(name) == "graphs") << plugin;
    }
  }
}

TEST_F(AudioCommand, ReportDescribesInputOutputAndPlugins) {
  const std::string in = wav("in.wav", 1000);
  const Ended ended = run_well({"audio", in, "-o", at("out.wav"), "--plugin", "gain", "--plugin",
                                "equaliser", "--block", "300", "--json", at("report.json")});
  EXPECT_THAT(ended.output, testing::HasSubstr("times real time"));
  const nlohmann::json report = json_at("report.json");
  EXPECT_EQ(report["command"], "audio");
  EXPECT_EQ(report["input"]["frames"], 1000);
  EXPECT_EQ(report["output"]["frames"], 1000);
  EXPECT_EQ(report["audio"]["channels"], 2);
  EXPECT_EQ(report["audio"]["sample_rate"], 48000);
  EXPECT_EQ(report["audio"]["block_frames"], 300);
  EXPECT_EQ(report["audio"]["clipped_samples"], 0);
  EXPECT_GT(report["audio"]["realtime_factor"].get<double>(), 0);
  ASSERT_EQ(report["plugins"].size(), 2U);
  EXPECT_EQ(report["plugins"][0]["jobs"], 4);  // 300, 300, 300, 100
}

TEST_F(AudioCommand, ReportListsTheCallsThatHoldUpNeighbours) {
  const std::string in = wav("in.wav", 1000);
  const std::string plugin =
      (program_folder().parent_path() / "test_plugins" / "hostile_sound.so").string();
  const auto calls_of = [&](const std::string& call, std::vector<std::string> more) {
    std::vector<std::string> arguments{
        "audio",   in,    "-o",     at("out.wav"),    "--plugin", plugin + ":allocates=on",
        "--block", "250", "--json", at("report.json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.errors;
    const auto report = json_at("report.json");
    for (const auto& one : report["audio"]["realtime_calls"]) {
      if (one["call"] != call) continue;
      EXPECT_EQ(one["tenant"], "hostile_sound");
      EXPECT_GE(one["seconds"], one["longest_seconds"]);
      EXPECT_THAT(ended.output, testing::HasSubstr(call));
      return std::pair(one["count"].get<int>(), one["refused"].get<int>());
    }
    return std::pair(0, 0);
  };
  write_bytes(folder / "driver.json",
              R"({"schema": "ctxbroker.policy/1", "for_all": {"memory": "driver"}})");
  write_bytes(folder / "refuse.json", R"({"schema": "ctxbroker.policy/1",
                                          "for_all": {"memory": "driver", "realtime": "refuse"}})");
  const auto with = [&](const char* lease, const char* policy) {
    return std::vector<std::string>{"--lease", lease, "--policy", at(policy)};
  };
  EXPECT_EQ(calls_of("cuMemAlloc", with("shared", "driver.json")), std::pair(4, 0))
      << "one for each block";
  EXPECT_EQ(calls_of("cuMemFree", with("shared", "driver.json")), std::pair(4, 0));
  EXPECT_EQ(calls_of("cuMemAlloc", with("private", "driver.json")), std::pair(0, 0))
      << "no neighbour waits";
  EXPECT_EQ(calls_of("cuMemAlloc", with("shared", "refuse.json")), std::pair(0, 4));
  EXPECT_EQ(calls_of("cuMemAlloc", {"--lease", "shared"}), std::pair(0, 0))
      << "memory of a pool makes no neighbour wait";
  EXPECT_EQ(calls_of("cuMemFree", {"--lease", "shared"}), std::pair(0, 0));
}

TEST_F(AudioCommand, PaceBeginsBlocksByTheClockAndChangesNoSample) {
  const std::string in = wav("in.wav", 9600);  // 0.2 s
  const auto make = [&](const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments{"audio",    in,      "-o",       at(name + ".wav"),
                                       "--plugin", "delay", "--plugin", "fir",
                                       "--block",  "64",    "--json",   at(name + ".json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_well(arguments).output;
  };
  EXPECT_THAT(make("free", {}), testing::Not(testing::HasSubstr("deadlines")));
  const std::string table = make("paced", {"--pace"});
  EXPECT_EQ(read_bytes(folder / "paced.wav"), read_bytes(folder / "free.wav"));
  EXPECT_FALSE(json_at("free.json")["audio"].contains("pace"));

  const nlohmann::json report = json_at("paced.json");
  const nlohmann::json& pace = report["audio"]["pace"];
  const std::int64_t frames = 9600 + report["audio"]["latency_frames"].get<std::int64_t>();
  const std::int64_t blocks = (frames + 63) / 64;
  EXPECT_EQ(pace["blocks"], blocks);
  EXPECT_EQ(report["plugins"][0]["jobs"], blocks);
  EXPECT_THAT(table, testing::HasSubstr(" of " + std::to_string(blocks) + " missed"));
  const auto value = [&](const char* member) { return pace.at(member).get<double>(); };
  EXPECT_GT(value("p50_us"), 0);
  EXPECT_LE(value("p50_us"), value("p99_us"));
  EXPECT_LE(value("p99_us"), value("p999_us"));
  EXPECT_LE(value("p999_us"), value("worst_us"));
  EXPECT_EQ(value("missed_deadlines") == 0, value("latest_us") == 0);
  EXPECT_LE(value("missed_deadlines"), value("blocks"));
  EXPECT_TRUE(report["audio"]["realtime_calls"].is_array());
  const double last_is_due = static_cast<double>(blocks - 1) * 64 / 48000;
  EXPECT_GE(report["wall_seconds"].get<double>(), last_is_due);
}

// A block is due 1 us after the one before it, and none goes through a graph in this time.
TEST_F(AudioCommand, PaceCountsEachResultThatComesTooLate) {
  write_raw_audio(folder / "in.wav", sine(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 1, 1'000'000, 50, 440));
  const Ended ended = run_well({"audio", at("in.wav"), "-o", at("out.wav"), "--plugin", "gain",
                                "--block", "1", "--pace", "--json", at("report.json")});
  const nlohmann::json pace = json_at("report.json")["audio"]["pace"];
  EXPECT_EQ(pace["blocks"], 50);
  EXPECT_EQ(pace["missed_deadlines"], 50);
  EXPECT_GT(pace["latest_us"], 0);
  EXPECT_THAT(ended.output, testing::ContainsRegex("deadlines +50 of 50 missed, by .* at most"));
}

TEST_F(AudioCommand, PaceHasOneBlockInTheGraph) {
  Start start;
  start.arguments = {"audio",  wav("in.wav", 100), "-o", at("out.wav"), "--plugin", "gain",
                     "--pace", "--jobs",           "2"};
  expect_error(start, ExitCode::usage, {"--pace", "--jobs", "see sample_host audio --help"});
}

TEST_F(AudioCommand, TailOptionAddsTheRingingEnd) {
  const std::string in = wav("in.wav", 4800);
  run_well({"audio", in, "-o", at("dry.wav"), "--plugin", "delay"});
  run_well({"audio", in, "-o", at("wet.wav"), "--plugin", "delay", "--tail", "0.5"});
  const auto dry = read_raw_audio(folder / "dry.wav").samples;
  const auto wet = read_raw_audio(folder / "wet.wav").samples;
  EXPECT_EQ(dry.size(), 2U * 4800);
  ASSERT_EQ(wet.size(), 2U * (4800 + 24000));
  EXPECT_TRUE(std::equal(dry.begin(), dry.end(), wet.begin()));
  EXPECT_TRUE(std::any_of(wet.begin() + 9600, wet.end(), [](auto s) { return s != 0; }));
}

TEST_F(AudioCommand, SecondsRepeatOrCutTheRecording) {
  const std::string in = wav("in.wav", 480);
  const auto made = [&](const char* seconds, const char* tail) {
    run_well({"audio", in, "-o", at("out.wav"), "--plugin", "gain:gain_db=0", "--block", "100",
              "--seconds", seconds, "--tail", tail, "--json", at("report.json")});
    return read_raw_audio(folder / "out.wav").samples;
  };
  const std::vector<std::int32_t> once = read_raw_audio(in).samples;
  std::vector<std::int32_t> wanted;
  for (int round = 0; round < 3; ++round) wanted.insert(wanted.end(), once.begin(), once.end());
  wanted.resize(2U * 1200);
  EXPECT_EQ(made("0.025", "0"), wanted) << "two and a half times 480 frames";
  EXPECT_EQ(json_at("report.json")["input"]["frames"], 1200);
  wanted.resize(2U * 240);
  EXPECT_EQ(made("0.005", "0"), wanted);
  wanted.resize(2U * (240 + 480));
  EXPECT_EQ(made("0.005", "0.01"), wanted) << "behind the end is silence, and not the recording";
  EXPECT_EQ(made("0", "0"), once) << "as without the option";
}

TEST_F(AudioCommand, LatencyOfPluginsIsRemovedFromTheOutput) {
  // A low-pass far above the tone: what comes out is the tone, where it was.
  const std::string in = wav("in.wav", 4000, 1);
  run_well({"audio", in, "-o", at("out.wav"), "--plugin", "fir:cutoff=20000,taps=65", "--json",
            at("report.json")});
  const auto before = read_raw_audio(in).samples;
  const auto after = read_raw_audio(folder / "out.wav").samples;
  ASSERT_EQ(after.size(), before.size());
  EXPECT_GT(json_at("report.json")["audio"]["latency_frames"], 0);
  double worst = 0;
  for (std::size_t i = 100; i + 100 < before.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(after[i]) - before[i]) / 2147483648.0);
  }
  EXPECT_LT(worst, 0.01);
}

TEST_F(AudioCommand, ClippingIsToldAndCounted) {
  const std::string in = wav("in.wav", 2000, 1);  // a peak of about -12 dB
  const Ended ended = run({"audio", in, "-o", at("out.wav"), "--plugin", "gain:gain_db=20",
                           "--json", at("report.json")});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.errors, testing::HasSubstr("clipped"));
  EXPECT_GT(json_at("report.json")["audio"]["clipped_samples"], 100);
}

TEST_F(AudioCommand, DepthChoosesTheEncoding) {
  const std::string in = wav("in.wav", 500);
  const auto format = [&](const char* name, const char* depth) {
    run_well({"audio", in, "-o", at(name), "--plugin", "gain", "--json", at("report.json"),
              "--depth", depth});
    return json_at("report.json")["output"]["format"].get<std::string>();
  };
  EXPECT_THAT(format("16.wav", "16"), testing::HasSubstr("WAV, 16 bit PCM"));
  EXPECT_THAT(format("24.wav", "24"), testing::HasSubstr("WAV, 24 bit PCM"));
  EXPECT_THAT(format("32.wav", "32"), testing::HasSubstr("WAV, 32 bit float"));
  EXPECT_THAT(format("24.aiff", "24"), testing::HasSubstr("AIFF, 24 bit PCM"));
  EXPECT_THAT(format("32.aif", "32"), testing::HasSubstr("AIFF, 32 bit float"));
  EXPECT_THAT(format("16.flac", "16"), testing::HasSubstr("FLAC, 16 bit PCM"));
  EXPECT_THAT(format("24.flac", "24"), testing::HasSubstr("FLAC, 24 bit PCM"));
  Start start;
  start.arguments = {"audio", in, "-o", at("32.flac"), "--plugin", "gain", "--depth", "32"};
  expect_error(start, ExitCode::usage, {"32.flac\": depth 32:", "FLAC", "16 or 24"});
  start.arguments.back() = "8";
  expect_error(start, ExitCode::usage, {"--depth", "8"});
}

TEST_F(AudioCommand, ExtensionOfTheOutputChoosesItsFormat) {
  const std::string in = wav("in.wav", 500);
  const auto type = [&](const char* name) {
    run_well({"audio", in, "-o", at(name), "--plugin", "gain:gain_db=0"});
    return read_raw_audio(folder / name).format & (SF_FORMAT_TYPEMASK | SF_FORMAT_SUBMASK);
  };
  EXPECT_EQ(type("out.flac"), SF_FORMAT_FLAC | SF_FORMAT_PCM_16);
  EXPECT_EQ(type("out.aiff"), SF_FORMAT_AIFF | SF_FORMAT_PCM_16);
  EXPECT_EQ(type("out.wav"), SF_FORMAT_WAV | SF_FORMAT_PCM_16);
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
