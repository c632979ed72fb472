// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "command_test.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::HasSubstr;

class ImageCommand : public CommandTest {};

struct Kind {
  const char* name;
  int depth;
  int colour_type;
};

std::ostream& operator<<(std::ostream& stream, const Kind& kind) {
  return stream << kind.name;
}

class ImageIdentity : public ImageCommand, public testing::WithParamInterface<Kind> {};

TEST_P(ImageIdentity, APluginThatPassesOnChangesNoSample) {
  const Kind& kind = GetParam();
  const std::string in = png("in.png", 37, 23, kind.depth, kind.colour_type);
  run_well({"image", in, "-o", at("out.png"), "--plugin", test_plugin("passes_on")});
  const RawPng before = read_raw_png(in);
  const RawPng after = read_raw_png(folder / "out.png");
  EXPECT_EQ(after.colour_type, before.colour_type);
  EXPECT_EQ(after.depth, before.depth);
  EXPECT_EQ(after.samples, before.samples);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ImageIdentity,
                         testing::Values(Kind{"grey8", 8, 0}, Kind{"grey16", 16, 0},
                                         Kind{"grey_alpha8", 8, 4}, Kind{"rgb8", 8, 2},
                                         Kind{"rgb16", 16, 2}, Kind{"rgba8", 8, 6},
                                         Kind{"rgba16", 16, 6}));

TEST_F(ImageCommand, ExposureBrightensByStops) {
  RawPng raw{2, 1, 16, 2, false, false, {1000, 5000, 20000, 0, 40000, 65535}};
  write_raw_png(folder / "in.png", raw);
  run_well({"image", at("in.png"), "-o", at("out.png"), "--plugin", "exposure:stops=1"});
  const RawPng out = read_raw_png(folder / "out.png");
  // Twice the light: from linear values by hand, 16 bits.
  const auto twice = [](double code) {
    const double v = code / 65535;
    const double linear = 2 * (v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4));
    const double encoded =
        linear <= 0.0031308 ? linear * 12.92 : 1.055 * std::pow(linear, 1 / 2.4) - 0.055;
    return std::min(encoded, 1.0) * 65535;
  };
  for (std::size_t i = 0; i < raw.samples.size(); ++i) {
    EXPECT_NEAR(out.samples[i], twice(raw.samples[i]), 1.0) << i;
  }
}

TEST_F(ImageCommand, RowOfFourPluginsWritesImageAndReport) {
  const std::string in = png("in.png", 61, 45, 8, 6);
  const Ended ended = run_well({"image", in, "-o", at("out.png"), "--plugin", "exposure:stops=0.7",
                                "--plugin", "blur:radius=2", "--plugin", "unsharp", "--plugin",
                                "colour_matrix", "--lease", "shared", "--json", at("report.json")});
  EXPECT_THAT(folder.names(), testing::ElementsAre("in.png", "out.png", "report.json"));
  EXPECT_EQ(read_raw_png(folder / "out.png").width, 61U);
  for (const char* word : {"driver", "device", "plug-in", "lease", "time on device", "launches",
                           "memory", "exposure", "blur", "unsharp", "colour_matrix", "shared"}) {
    EXPECT_THAT(ended.output, HasSubstr(word));
  }
  const nlohmann::json report = json_at("report.json");
  EXPECT_EQ(report["schema"], "ctxbroker.sample_host.report/1");
  EXPECT_EQ(report["command"], "image");
  EXPECT_EQ(report["output"]["width"], 61);
  EXPECT_EQ(report["output"]["height"], 45);
  EXPECT_EQ(report["output"]["path"], at("out.png"));
  EXPECT_GT(report["wall_seconds"].get<double>(), 0);
  ASSERT_EQ(report["plugins"].size(), 4U);
  EXPECT_EQ(report["plugins"][0]["short_name"], "exposure");
  EXPECT_EQ(report["plugins"][0]["parameters"]["stops"], 0.7);
  for (const auto& plugin : report["plugins"]) {
    EXPECT_EQ(plugin["lease"]["granted"], "shared") << plugin;
    EXPECT_EQ(plugin["jobs"], 1) << plugin;
    EXPECT_GE(plugin["launches"].get<int>(), 1) << plugin;
    EXPECT_GT(plugin["device_seconds"].get<double>(), 0) << plugin;
    EXPECT_EQ(plugin["strikes"], 0) << plugin;
  }
  EXPECT_EQ(report["metrics"]["schema"], "ctxbroker.metrics/1");
  std::uint64_t jobs = 0;
  for (const auto& tenant : report["metrics"]["tenants"]) {
    for (const auto& lease : tenant["leases"]) jobs += lease["jobs"].get<std::uint64_t>();
  }
  EXPECT_EQ(jobs, 4U);
}

TEST_F(ImageCommand, SharedAndPrivateLeasesGiveTheSameBytes) {
  const std::string in = png("in.png", 61, 45, 16, 6);
  for (const char* lease : {"shared", "private"}) {
    run_well({"image", in, "-o", at(std::string(lease) + ".png"), "--plugin", "exposure:stops=0.7",
              "--plugin", "blur:radius=3", "--plugin", "unsharp", "--lease", lease, "--json",
              at(std::string(lease) + ".json")});
  }
  EXPECT_EQ(read_bytes(folder / "shared.png"), read_bytes(folder / "private.png"));
  EXPECT_EQ(json_at("private.json")["plugins"][1]["lease"]["granted"], "private");
}

TEST_F(ImageCommand, OnePixelAndSixteenBitsAreWritten) {
  png("one.png", 1, 1);
  run_well({"image", at("one.png"), "-o", at("out.png"), "--plugin", "blur:radius=6"});
  EXPECT_EQ(read_raw_png(folder / "out.png").samples, read_raw_png(folder / "one.png").samples);
  run_well({"image", at("one.png"), "-o", at("wide.png"), "--plugin", "blur", "--depth", "16"});
  EXPECT_EQ(read_raw_png(folder / "wide.png").depth, 16);
}

TEST_F(ImageCommand, CompressionChangesTheFileAndNoSample) {
  const std::string in = png("in.png", 200, 100);
  for (const char* level : {"0", "1", "9"}) {
    run_well({"image", in, "-o", at(std::string(level) + ".png"), "--plugin",
              test_plugin("passes_on"), "--png-compression", level});
    EXPECT_EQ(read_raw_png(folder / (std::string(level) + ".png")).samples,
              read_raw_png(in).samples);
  }
  EXPECT_GT(read_bytes(folder / "0.png").size(), 60'000U);
  EXPECT_NE(read_bytes(folder / "1.png"), read_bytes(folder / "9.png"));
  run_well({"image", in, "-o", at("default.png"), "--plugin", test_plugin("passes_on")});
  EXPECT_EQ(read_bytes(folder / "default.png"), read_bytes(folder / "1.png"));
}

TEST_F(ImageCommand, TheOutputMayBeTheInput) {
  const std::string in = png("in.png", 20, 10);
  run_well({"image", in, "-o", in, "--plugin", "exposure:stops=-16"});
  const RawPng out = read_raw_png(in);
  EXPECT_THAT(out.samples, testing::Each(0));
  EXPECT_THAT(folder.names(), testing::ElementsAre("in.png"));
}

TEST_F(ImageCommand, QuietPrintsNothingAndJsonGoesToStandardOutput) {
  const std::string in = png("in.png", 8, 8);
  const Ended quiet = run_well({"image", in, "-o", at("out.png"), "--plugin", "blur", "-q"});
  EXPECT_EQ(quiet.output, "");
  const Ended json =
      run_well({"image", in, "-o", at("out.png"), "--plugin", "blur", "--json", "-"});
  EXPECT_EQ(nlohmann::json::parse(json.output)["command"], "image");
}

TEST_F(ImageCommand, PluginsAreFoundByNameIdAndPath) {
  const std::string in = png("in.png", 8, 8);
  const std::string library = (program_folder().parent_path() / "plugins" / "exposure.so").string();
  run_well({"image", in, "-o", at("name.png"), "--plugin", "exposure:stops=1"});
  run_well({"image", in, "-o", at("id.png"), "--plugin", "org.ctxbroker.sample.exposure:stops=1"});
  run_well({"image", in, "-o", at("path.png"), "--plugin", library + ":stops=1"});
  run_well({"image", in, "-o", at("part.png"), "--plugin", library + "#exposure:stops=1"});
  for (const char* other : {"id.png", "path.png", "part.png"}) {
    EXPECT_EQ(read_bytes(folder / "name.png"), read_bytes(folder / other)) << other;
  }
}

TEST_F(ImageCommand, VerboseTellsMoreOnStandardError) {
  const std::string in = png("in.png", 8, 8);
  const Ended ended = run({"image", in, "-o", at("out.png"), "--plugin", "blur", "-vv"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_NE(ended.errors, "");
  EXPECT_THAT(ended.errors, testing::Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
