// SPDX-License-Identifier: Apache-2.0
// Automation files, and what each block and each frame of a sequence gets of them.
#include "automation.hpp"

#include <gmock/gmock.h>

#include <map>

#include "failure_matcher.hpp"
#include "limits/limits.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::sample_host::test {
namespace {

TEST(AutomationFile, ReadsLinesWithBlanksAndComments) {
  const auto lines = parse_automation(
      "# time, parameter, value\n"
      "\n"
      "0.5, desk.level_1, 0.25\r\n"
      "2,echo.kind,high-pass,  1e-3",
      "a.csv");
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].where, "automation \"a.csv\": line 3: ");
  EXPECT_EQ(lines[0].time, 0.5);
  EXPECT_EQ(lines[0].node, "desk");
  EXPECT_EQ(lines[0].parameter, "level_1");
  EXPECT_EQ(lines[0].value, "0.25");
  EXPECT_EQ(lines[0].ramp, 0);
  EXPECT_EQ(lines[1].value, "high-pass");
  EXPECT_EQ(lines[1].ramp, 1e-3);
  EXPECT_TRUE(parse_automation("", "a.csv").empty());
}

TEST(AutomationFile, MistakesNameTheLine) {
  const auto refuse = [](const char* text, const char* part) {
    expect_failure([&] { parse_automation(std::string("\n") + text, "a.csv"); }, ExitCode::usage,
                   std::string("automation \"a.csv\": line 2: ") + part);
  };
  refuse("1", "\"1\" has 1 field; a line is TIME,NODE.PARAMETER,VALUE");
  refuse("1,a.b,2,3,4", "\"1,a.b,2,3,4\" has 5 fields");
  refuse("-1,a.b,2", "\"-1\" is not a time");
  refuse("nan,a.b,2", "\"nan\" is not a time");
  refuse("1e10,a.b,2", "\"1e10\" is not a time");
  refuse("1s,a.b,2", "\"1s\" is not a time");
  refuse(",a.b,2", "\"\" is not a time");
  refuse("1,ab,2", "\"ab\" is not a node's parameter");
  refuse("1,.b,2", "\".b\" is not a node's parameter");
  refuse("1,a.,2", "\"a.\" is not a node's parameter");
  refuse("1,a.b,", "the value is missing");
  refuse("1,a.b,2,x", "\"x\" is not a length of a ramp");
  const TempFolder folder;
  expect_failure([&] { read_automation(folder / "none.csv"); }, ExitCode::usage,
                 "there is no such file");
}

TEST(AutomationFile, NullCharacterIsRefusedWithItsLine) {
  expect_failure([] { parse_automation(std::string("0,a.b,1\n1,a.b,\0005\n", 16), "a.csv"); },
                 ExitCode::usage,
                 "automation \"a.csv\": line 2: byte 6 of it is a null character; write text");
}

TEST(AutomationFile, LongLineIsShortenedInTheMessage) {
  try {
    parse_automation(std::string(1'000'000, '1'), "a.csv");
    ADD_FAILURE() << "was read";
  } catch (const Failure& failure) {
    const std::string message = failure.what();
    EXPECT_LT(message.size(), 1000U);
    EXPECT_NE(message.find("... has 1 field; a line is"), std::string::npos) << message;
  }
}

TEST(AutomationFile, FileWithOneByteTooManyIsRefusedUnread) {
  const TempFolder folder;
  const auto file = folder / "large.csv";
  write_bytes(file, "");
  std::filesystem::resize_file(file, limits::automation_file.most + 1);
  expect_failure(
      [&] { read_automation(file); }, ExitCode::usage,
      "\"" + file.string() + "\": the file has " + limits::beyond(limits::automation_file));
  write_bytes(file, std::string(limits::automation_file.most, '\n'));
  EXPECT_TRUE(read_automation(file).empty()) << "a control, at the limit";
}

AutomationPoint point(std::size_t parameter, std::int64_t begin, double value,
                      std::uint32_t ramp = 0) {
  return {0, parameter, begin, ramp, value, 0, 0};
}

// The value of each parameter at each frame, worked out from the blocks' changes as job_events.hpp
// says.
std::vector<std::map<std::size_t, double>> play(const std::vector<AutomationPoint>& points,
                                                const std::vector<std::uint32_t>& blocks) {
  Automation automation(points);
  std::vector<std::map<std::size_t, double>> values;
  std::map<std::size_t, double> now;
  std::vector<WorkerParameterChange> changes;
  std::int64_t position = 0;
  for (const std::uint32_t frames : blocks) {
    automation.fill(position, frames, changes);
    std::int64_t before = INT64_MIN;
    for (const WorkerParameterChange& change : changes) {
      EXPECT_GE(change.offset, before);
      EXPECT_LT(change.offset, frames);
      EXPECT_GT(change.offset + change.ramp_frames + (change.ramp_frames == 0 ? 1 : 0), 0);
      before = change.offset;
    }
    for (std::int64_t frame = 0; frame < frames; ++frame) {
      for (const WorkerParameterChange& change : changes) {
        if (change.offset > frame) continue;
        const double part =
            change.ramp_frames == 0
                ? 1
                : std::min(1.0, static_cast<double>(frame - change.offset) / change.ramp_frames);
        now[change.parameter] = change.from + (change.value - change.from) * part;
        if (change.ramp_frames == 0) now[change.parameter] = change.value;
      }
      values.push_back(now);
    }
    // A ramp that ends with the block has arrived after it, as in the broker.
    for (const WorkerParameterChange& change : changes) {
      if (change.offset + change.ramp_frames == frames) now[change.parameter] = change.value;
    }
    position += frames;
  }
  return values;
}

const std::vector<AutomationPoint>& points() {
  static const std::vector<AutomationPoint> all =
      prepare_automation({point(0, 30, 1, 40), point(1, 0, 8), point(0, 0, 2), point(0, 50, 3, 10),
                          point(1, 25, 4, 90), point(0, 55, 7), point(1, 99, 0), point(2, 500, 1)});
  return all;
}

TEST(AutomationBlocks, ValuesDoNotDependOnWhereBlocksEnd) {
  const auto whole = play(points(), {120});
  EXPECT_EQ(whole[0].at(0), 2);
  EXPECT_EQ(whole[40].at(0), 1.75);
  EXPECT_EQ(whole[50].at(0), 1.5) << "the new ramp begins where the old one was";
  EXPECT_EQ(whole[52].at(0), 1.8);
  EXPECT_EQ(whole[55].at(0), 7);
  EXPECT_EQ(whole[119].at(0), 7);
  EXPECT_EQ(whole[24].at(1), 8);
  EXPECT_EQ(whole[70].at(1), 6);
  EXPECT_EQ(whole[99].at(1), 0);
  EXPECT_FALSE(whole[119].contains(2));
  EXPECT_EQ(play(points(), std::vector<std::uint32_t>(120, 1)), whole);
  EXPECT_EQ(play(points(), {30, 20, 5, 1, 14, 50}), whole);
  EXPECT_EQ(play(points(), {7, 64, 49}), whole);
}

// Frames of a sequence are done in any order, and on different machines.
TEST(AutomationBlocks, FirstChangeBeyondTheMostOfABlockIsFound) {
  std::vector<AutomationPoint> all;
  for (std::size_t i = 0; i < 12; ++i) {
    all.push_back(point(0, i < 4 ? 5 : 1'000'000'000'000, 1, i == 3 ? 20 : 0));
    all.back().change = i;
  }
  const Automation automation(prepare_automation(std::move(all)));
  EXPECT_FALSE(automation.first_beyond(10, 8)) << "8 at one time";
  ASSERT_TRUE(automation.first_beyond(10, 7));
  EXPECT_EQ(automation.first_beyond(10, 7)->change, 11U);
  EXPECT_EQ(automation.first_beyond(10, 3)->change, 3U);
}

TEST(AutomationBlocks, RunningRampCountsAsAChangeOfEachBlock) {
  const Automation automation(
      prepare_automation({point(0, 5, 1, 20), point(1, 15, 1), point(1, 16, 0)}));
  EXPECT_FALSE(automation.first_beyond(10, 3));
  ASSERT_TRUE(automation.first_beyond(10, 2));
  EXPECT_EQ(automation.first_beyond(10, 2)->begin, 16);
}

TEST(AutomationFrames, ValuesOfAFrameNeedNoFrameBefore) {
  const auto whole = play(points(), {120});
  for (std::int64_t frame = 0; frame < 120; ++frame) {
    std::map<std::size_t, double> values;
    for (const auto& [one, value] : values_at(points(), frame)) values[one->parameter] = value;
    EXPECT_EQ(values, whole[static_cast<std::size_t>(frame)]) << frame;
  }
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
