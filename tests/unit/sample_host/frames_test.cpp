// SPDX-License-Identifier: Apache-2.0
#include "frames.hpp"

#include <gtest/gtest.h>

#include "failure_matcher.hpp"

namespace ctxbroker::sample_host::test {
namespace {

TEST(Frames, FrameRangesAreParsedOrRefused) {
  EXPECT_EQ(parse_frame_range("1-100"), (FrameRange{1, 100}));
  EXPECT_EQ(parse_frame_range("0-0"), (FrameRange{0, 0}));
  EXPECT_EQ(parse_frame_range("0007"), (FrameRange{7, 7}));
  EXPECT_EQ(parse_frame_range("999000000-999999999"), (FrameRange{999000000, 999999999}));
  for (const char* text : {"", "-", "1-", "-1", "2-1", "1-2-3", "a-b", "1 -2", "1-2x", "+1-2",
                           "1--2", "1000000000", "0-1000000", "99999999999999999999"}) {
    EXPECT_FALSE(parse_frame_range(text)) << text;
  }
}

TEST(Frames, FrameNamesAreFilledInOrRefused) {
  EXPECT_EQ(FrameName("shot.%04d.png").of(7), "shot.0007.png");
  EXPECT_EQ(FrameName("shot.%04d.png").of(12345), "shot.12345.png");
  EXPECT_EQ(FrameName("a/%d/b.exr").of(30), "a/30/b.exr");
  EXPECT_EQ(FrameName("%09d").of(0), "000000000");
  for (const char* text : {"shot.png", "", "%", "%s.png", "%4d.png", "%00d.png", "%012d.png", "%04",
                           "%d%d.png", "%%d.png", "%d%.png", "100%.%d.png", "%n", "%0d"}) {
    expect_failure([&] { FrameName name{text}; }, ExitCode::usage,
                   "\"" + std::string(text) + "\": with --frames");
  }
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
