// SPDX-License-Identifier: Apache-2.0
// sample_host image with OpenEXR files.
#include <ImfTileDescription.h>

#include "command_test.hpp"
#include "fixtures/exr_fixture.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::HasSubstr;

class ExrCommand : public CommandTest {
 protected:
  std::string exr(const std::string& name, const RawExr& raw) const {
    write_raw_exr(folder / name, raw);
    return at(name);
  }
  Start image(const std::string& in, const std::string& out,
              const std::vector<std::string>& more = {}) const {
    Start start;
    start.arguments = {"image", at(in), "-o", at(out), "--plugin", test_plugin("passes_on")};
    start.arguments.insert(start.arguments.end(), more.begin(), more.end());
    return start;
  }
};

TEST_F(ExrCommand, APluginThatPassesOnChangesNoSample) {
  for (const Imf::PixelType type : {Imf::HALF, Imf::FLOAT}) {
    const RawExr raw = make_exr(61, 45, {"R", "G", "B"}, type);
    run_well({"image", exr("in.exr", raw), "-o", at("out.exr"), "--plugin",
              test_plugin("passes_on"), "--json", at("report.json")});
    const RawExr out = read_raw_exr(folder / "out.exr");
    EXPECT_EQ(out.channels, raw.channels);
    EXPECT_EQ(out.type, type);
    const std::string format =
        std::string("OpenEXR, RGB, ") + (type == Imf::HALF ? "16" : "32") + " bit float";
    EXPECT_EQ(json_at("report.json")["input"]["format"], format);
    EXPECT_EQ(json_at("report.json")["output"]["format"], format);
  }
}

// The plug-in takes nothing but halves.
TEST_F(ExrCommand, HalvesReachThePluginAsTheyAre) {
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"R", "G", "B"}, {"R", "G", "B", "A"}}) {
    RawExr raw = make_exr(61, 45, names);
    if (names.size() == 4) {
      for (std::size_t i = 0; i < raw.channels["A"].size(); ++i) {
        raw.channels["A"][i] = static_cast<float>(i % 2);
      }
    }
    run_well({"image", exr("in.exr", raw), "-o", at("out.exr"), "--plugin",
              test_plugin("takes_halves")});
    EXPECT_EQ(read_raw_exr(folder / "out.exr").channels, raw.channels);
  }
  Start start = image("in.exr", "out.exr");
  start.arguments = {"image",   at("in.exr"), "-o",       at("out.exr"),
                     "--depth", "32",         "--plugin", test_plugin("takes_halves")};
  expect_error(start, exit_code_of(ErrorKind::invalid_argument), {"float", "half"});
}

// The samples that plug-ins compute in halves and in floats are the same, where each is rounded
// once.
TEST_F(ExrCommand, HalvesAreComputedInFloat) {
  const RawExr raw = make_exr(40, 30, {"R", "G", "B"});
  run_well({"image", exr("in.exr", raw), "-o", at("out.exr"), "--plugin",
            "colour_matrix:m00=0.3,m01=0.7,m12=-0.4"});
  RawExr out = read_raw_exr(folder / "out.exr");
  for (std::size_t i = 0; i < raw.channels.at("R").size(); ++i) {
    const float r = raw.channels.at("R")[i], g = raw.channels.at("G")[i];
    const float b = raw.channels.at("B")[i];
    const double red = 0.3 * r + 0.7 * g, green = g - 0.4 * b;
    ASSERT_NEAR(out.channels["R"][i], red, std::abs(red) / 1900 + 1e-7);
    ASSERT_NEAR(out.channels["G"][i], green, (std::abs(g) + std::abs(b)) / 1900 + 1e-7);
    ASSERT_EQ(out.channels["B"][i], b);
  }
}

// No curve is between the file and the plug-in, and nothing is clamped.
TEST_F(ExrCommand, ExposureDoublesLinearValues) {
  RawExr raw = make_exr(40, 30, {"R", "G", "B", "A"}, Imf::FLOAT);
  std::fill(raw.channels["A"].begin(), raw.channels["A"].end(), 1.0F);
  run_well({"image", exr("in.exr", raw), "-o", at("out.exr"), "--plugin", "exposure:stops=1"});
  RawExr out = read_raw_exr(folder / "out.exr");
  for (const char* name : {"R", "G", "B"}) {
    for (std::size_t i = 0; i < raw.channels[name].size(); ++i) {
      const float twice = 2 * raw.channels[name][i];
      ASSERT_NEAR(out.channels[name][i], twice, twice * 1e-5F + 1e-6F);
    }
  }
  EXPECT_EQ(out.channels["A"], raw.channels["A"]);
}

TEST_F(ExrCommand, PluginsGetStraightColours) {
  RawExr raw = make_exr(1, 1, {"R", "G", "B", "A"}, Imf::FLOAT);
  raw.channels = {{"R", {0.25F}}, {"G", {0.125F}}, {"B", {0.0F}}, {"A", {0.5F}}};
  // 0.1 is added to the straight colours, 0.5 and 0.25; half of the sum is in the file.
  run_well({"image", exr("in.exr", raw), "-o", at("out.exr"), "--plugin",
            "colour_matrix:offset_red=0.1,offset_green=0.1,offset_blue=0.1"});
  RawExr out = read_raw_exr(folder / "out.exr");
  EXPECT_NEAR(out.channels["R"][0], 0.3F, 1e-6F);
  EXPECT_NEAR(out.channels["G"][0], 0.175F, 1e-6F);
  EXPECT_NEAR(out.channels["B"][0], 0.05F, 1e-6F);
}

TEST_F(ExrCommand, PngThroughOpenExrKeepsItsSamples) {
  const std::string in = png("in.png", 33, 20, 8, 2);
  run_well(image("in.png", "between.exr").arguments);
  EXPECT_EQ(read_raw_exr(folder / "between.exr").type, Imf::HALF);
  run_well(image("between.exr", "out.png", {"--depth", "8"}).arguments);
  EXPECT_EQ(read_raw_png(folder / "out.png").samples, read_raw_png(in).samples);
  run_well(image("in.png", "wide.exr", {"--depth", "32"}).arguments);
  EXPECT_EQ(read_raw_exr(folder / "wide.exr").type, Imf::FLOAT);
  run_well(image("wide.exr", "narrow.exr", {"--depth", "16"}).arguments);
  EXPECT_EQ(read_bytes(folder / "narrow.exr"), read_bytes(folder / "between.exr"));
}

TEST_F(ExrCommand, TiledFileIsRead) {
  RawExr raw = make_exr(50, 40, {"R", "G", "B", "A"});
  raw.header.setTileDescription(Imf::TileDescription(16, 16));
  exr("in.exr", raw);
  run_well(image("in.exr", "out.exr").arguments);
  EXPECT_EQ(read_raw_exr(folder / "out.exr").channels, raw.channels);
}

TEST_F(ExrCommand, ChannelsThatAreLeftOutAreReported) {
  exr("in.exr", make_exr(5, 4, {"R", "G", "B", "Z"}));
  const Ended ended = run(image("in.exr", "out.exr").arguments);
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.errors, HasSubstr("in.exr"));
  EXPECT_THAT(ended.errors, HasSubstr("missing in the output: Z"));
  EXPECT_EQ(read_raw_exr(folder / "out.exr").channels.size(), 3U);
}

TEST_F(ExrCommand, BadFilesAreNamed) {
  exr("whole.exr", make_exr(40, 30, {"R", "G", "B", "A"}));
  const std::string bytes = read_bytes(folder / "whole.exr");
  for (const std::size_t length : {bytes.size() / 2, bytes.size() - 1, std::size_t{100}}) {
    write_bytes(folder / "in.exr", bytes.substr(0, length));
    expect_error(image("in.exr", "out.exr"), ExitCode::input, {"in.exr", "truncated"});
  }
  std::string garbage = bytes;
  for (std::size_t at = 8; at < garbage.size(); at += 3) garbage[at] = static_cast<char>(at * 7);
  write_bytes(folder / "in.exr", garbage);
  expect_error(image("in.exr", "out.exr"), ExitCode::input, {"in.exr"});
  write_deep_exr(folder / "in.exr");
  expect_error(image("in.exr", "out.exr"), ExitCode::input, {"deep pixels", "flatten"});
  exr("in.exr", make_exr(4, 4, {"beauty.R", "beauty.G", "beauty.B"}));
  expect_error(image("in.exr", "out.exr"), ExitCode::input, {"beauty.R", "R, G and B"});
}

TEST_F(ExrCommand, DepthThatAFileTypeLacksIsRefused) {
  png("in.png", 4, 4);
  expect_error(image("in.png", "out.exr", {"--depth", "8"}), ExitCode::usage,
               {"out.exr\": depth 8:", "OpenEXR", "16 or 32"});
  expect_error(image("in.png", "out.png", {"--depth", "32"}), ExitCode::usage,
               {"out.png\": depth 32:", "PNG", "8 or 16"});
}

TEST_F(ExrCommand, AFullDiskLeavesNothing) {
  exr("in.exr", make_exr(200, 100, {"R", "G", "B"}, Imf::FLOAT));
  Start start = image("in.exr", "out.exr");
  start.wrapper = "ulimit -f 8";
  expect_error(start, ExitCode::output, {"out.exr", "File too large"});
}

TEST_F(ExrCommand, TheOutputMayBeTheInput) {
  const RawExr raw = make_exr(20, 10, {"Y"});
  exr("in.exr", raw);
  run_well(image("in.exr", "in.exr").arguments);
  EXPECT_EQ(read_raw_exr(folder / "in.exr").channels, raw.channels);
  EXPECT_THAT(folder.names(), testing::ElementsAre("in.exr"));
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
