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
