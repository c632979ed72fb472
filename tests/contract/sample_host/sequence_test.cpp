// SPDX-License-Identifier: Apache-2.0
// sample_host image with --frames.
#include "command_test.hpp"
#include "fixtures/exr_fixture.hpp"

namespace ctxbroker::sample_host::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Sequence : public CommandTest {
 protected:
  // in.8.png to in.11.png through exposure to out.0008.png and so on.
  Start frames(const std::string& range, const std::vector<std::string>& more = {}) const {
    Start start;
    start.arguments = {"image",    at("in.%d.png"),    "-o",       at("out.%04d.png"),
                       "--plugin", "exposure:stops=1", "--frames", range};
    start.arguments.insert(start.arguments.end(), more.begin(), more.end());
    return start;
  }
  void make_inputs() const {
    for (int frame = 8; frame <= 11; ++frame) {
      png("in." + std::to_string(frame) + ".png", 20, static_cast<std::uint32_t>(frame));
    }
  }
  std::string single(int frame) const {
    run_well({"image", at("in." + std::to_string(frame) + ".png"), "-o", at("single.png"),
              "--plugin", "exposure:stops=1"});
    std::string bytes = read_bytes(folder / "single.png");
    std::filesystem::remove(folder / "single.png");
    return bytes;
  }
};

// Their sizes grow and shrink: 20 x 8, 20 x 9, 30 x 2 and 20 x 11.
TEST_F(Sequence, FrameOfASequenceEqualsTheFrameAlone) {
  make_inputs();
  png("in.10.png", 30, 2);
  run_well(frames("8-11", {"--json", at("report.json")}).arguments);
  EXPECT_EQ(read_bytes(folder / "out.0008.png"), single(8));
  EXPECT_EQ(read_bytes(folder / "out.0009.png"), single(9));
  EXPECT_EQ(read_bytes(folder / "out.0010.png"), single(10));
  EXPECT_EQ(read_bytes(folder / "out.0011.png"), single(11));
  const nlohmann::json report = json_at("report.json");
  EXPECT_EQ(report["frames"],
            nlohmann::json::parse(R"({"first": 8, "last": 11, "written": 4, "skipped": 0})"));
  EXPECT_EQ(report["output"]["path"], at("out.0011.png"));
  EXPECT_EQ(report["plugins"][0]["jobs"], 4);
  EXPECT_EQ(report["plugins"][0]["strikes"], 0);
}

// The mean of a frame and its neighbours; the one at the end counts twice.
TEST_F(Sequence, PluginsGetTheFramesAround) {
  const auto light = [](int frame) { return static_cast<float>(frame * frame) / 64; };
  for (int frame = 7; frame <= 12; ++frame) {
    RawExr raw = make_exr(3, 2, {"R", "G", "B"}, frame == 9 ? Imf::FLOAT : Imf::HALF);
    for (auto& [name, values] : raw.channels) values.assign(6, light(frame));
    write_raw_exr(folder / ("in." + std::to_string(frame) + ".exr"), raw);
  }
  const auto render = [&](const std::string& range) {
    run_well({"image", at("in.%d.exr"), "-o", at("out.%d.exr"), "--plugin", "time_blur", "--frames",
              range});
  };
  render("7-12");
  for (int frame = 7; frame <= 12; ++frame) {
    const float mean =
        (light(std::max(frame - 1, 7)) + light(frame) + light(std::min(frame + 1, 12))) / 3;
    const RawExr out = read_raw_exr(folder / ("out." + std::to_string(frame) + ".exr"));
    EXPECT_EQ(out.type, frame == 9 ? Imf::FLOAT : Imf::HALF);
    EXPECT_NEAR(out.channels.at("G")[5], mean, mean / 1000) << frame;
  }
  // A part of the sequence, and one frame of it, are the same as in the whole.
  const std::string whole = read_bytes(folder / "out.10.exr");
  render("10-11");
  EXPECT_EQ(read_bytes(folder / "out.10.exr"), whole);
  // The input is overwritten while it is still needed.
  run_well({"image", at("in.%d.exr"), "-o", at("in.%d.exr"), "--plugin", "time_blur", "--frames",
            "7-12"});
  EXPECT_EQ(read_bytes(folder / "in.10.exr"), whole);
  run_well({"image", at("in.7.exr"), "-o", at("alone.exr"), "--plugin", "time_blur"});
  EXPECT_EQ(read_raw_exr(folder / "alone.exr").channels,
            read_raw_exr(folder / "in.7.exr").channels);
}

TEST_F(Sequence, FramesOfDifferentSizesCannotMeet) {
  make_inputs();
  Start start = frames("8-11");
  start.arguments[5] = "time_blur";
  expect_error(start, ExitCode::input,
               {"frame 8: it has 20 x 8 pixels, and frame 9 has 20 x 9 pixels"});
}

TEST_F(Sequence, ExistingFramesAreSkipped) {
  make_inputs();
  write_bytes(folder / "out.0009.png", "the old one");
  std::filesystem::remove(folder / "in.9.png");  // not needed any more
  const Ended ended = run_well(frames("8-10", {"--skip-existing"}).arguments);
  EXPECT_THAT(ended.output, HasSubstr("8 to 10: 2 written, 1 skipped"));
  EXPECT_EQ(read_bytes(folder / "out.0009.png"), "the old one");
  EXPECT_EQ(read_bytes(folder / "out.0010.png"), single(10));
  const Ended again = run(frames("8-10", {"--skip-existing"}).arguments);
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.errors, HasSubstr("all frames exist already"));
  make_inputs();
  run_well(frames("9-9").arguments);
  EXPECT_EQ(read_bytes(folder / "out.0009.png"), single(9));  // without the option it is replaced
}

TEST_F(Sequence, AMissingFrameIsNamedBeforeAnythingIsWritten) {
  make_inputs();
  std::filesystem::remove(folder / "in.10.png");
  expect_error(frames("8-11"), ExitCode::input, {"frame 10: ", "in.10.png", "No such file"});
}

TEST_F(Sequence, FramesBeforeADamagedOneStay) {
  make_inputs();
  const std::string bytes = read_bytes(folder / "in.9.png");
  write_bytes(folder / "in.9.png", bytes.substr(0, bytes.size() / 2));
  const Ended ended = run(frames("8-11").arguments);
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.errors, testing::StartsWith("sample_host: error: frame 9: "));
  EXPECT_THAT(ended.errors, HasSubstr("truncated"));
  EXPECT_EQ(read_bytes(folder / "out.0008.png"), single(8));
  EXPECT_THAT(folder.names(),
              ElementsAre("in.10.png", "in.11.png", "in.8.png", "in.9.png", "out.0008.png"));
}

TEST_F(Sequence, APluginsFailureNamesTheFrame) {
  make_inputs();
  Start start = frames("10-11");
  start.arguments[5] = test_plugin("process_fails");
  expect_error(start, ExitCode::plugin, {"frame 10: ", "the colours have run out"});
}

TEST_F(Sequence, NamesNeedAPlaceForTheNumber) {
  make_inputs();
  Start start = frames("8-9");
  start.arguments[3] = at("out.png");
  expect_error(start, ExitCode::usage, {"out.png", "%04d"});
  start = frames("8-9");
  start.arguments[1] = at("in.8.png");
  expect_error(start, ExitCode::usage, {"in.8.png", "%04d"});
}

TEST_F(Sequence, PercentSignWithoutFramesIsAnOrdinaryCharacter) {
  const std::string in = png("in.%d.png", 8, 8);
  run_well({"image", in, "-o", at("100%.png"), "--plugin", "exposure"});
  EXPECT_THAT(folder.names(), ElementsAre("100%.png", "in.%d.png"));
}

TEST_F(Sequence, OpenExrFramesWithTheirOwnWindows) {
  for (int frame = 1; frame <= 2; ++frame) {
    RawExr raw = make_exr(static_cast<std::uint32_t>(10 * frame), 6, {"R", "G", "B"});
    raw.header.displayWindow() = {{0, 0}, {39, 29}};
    write_raw_exr(folder / ("in." + std::to_string(frame) + ".exr"), raw);
  }
  run_well({"image", at("in.%d.exr"), "-o", at("out.%d.exr"), "--plugin", test_plugin("passes_on"),
            "--frames", "1-2"});
  for (const char* number : {"1", "2"}) {
    const RawExr in = read_raw_exr(folder / ("in." + std::string(number) + ".exr"));
    const RawExr out = read_raw_exr(folder / ("out." + std::string(number) + ".exr"));
    EXPECT_EQ(out.channels, in.channels);
    EXPECT_EQ(out.header.dataWindow(), in.header.dataWindow());
  }
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
