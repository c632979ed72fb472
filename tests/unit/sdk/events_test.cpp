// SPDX-License-Identifier: Apache-2.0
// A parameter's segments cover the block without gaps, whatever the host sends.
#include <gmock/gmock.h>

#include <sstream>
#include <vector>

#include "ctxbroker/plugin.hpp"
#include "fake_host.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr std::uint32_t frames = 100;

ctxb_parameter_event jump(std::uint32_t offset, double value, std::uint32_t parameter = 0) {
  return {sizeof(ctxb_parameter_event), 0, parameter, offset, value, value, offset, offset};
}
ctxb_parameter_event ramp(std::int64_t begin, std::int64_t end, double from, double to) {
  const auto offset = static_cast<std::uint32_t>(begin < 0 ? 0 : begin);
  return {sizeof(ctxb_parameter_event), CTXB_EVENT_RAMP, 0, offset, to, from, begin, end};
}

ctxb_job job_of(const std::vector<ctxb_parameter_event>& events) {
  ctxb_job job{};
  job.size = sizeof job;
  job.events = events.data();
  job.event_count = static_cast<std::uint32_t>(events.size());
  return job;
}

// "0-10: 1, 10-100: 2 to 3" of parameter 0, which is 1 at first.
std::string text_of(const std::vector<ctxb_parameter_event>& events) {
  const ctxb_job job = job_of(events);
  std::ostringstream text;
  std::uint32_t next = 0;
  for (const Segment& part : Segments(job, 0, 1, frames)) {
    EXPECT_EQ(part.first, next);
    EXPECT_GT(part.end, part.first);
    text << (next == 0 ? "" : ", ") << part.first << "-" << part.end << ": " << part.at(part.first);
    if (part.from != part.to) text << " to " << part.at(part.end - 1);
    next = part.end;
    if (next > frames) break;
  }
  EXPECT_EQ(next, frames);
  return text.str();
}

TEST(SdkSegments, BlockWithoutChangesIsOneSegment) {
  EXPECT_EQ(text_of({}), "0-100: 1");
  EXPECT_EQ(text_of({jump(30, 5, 1)}), "0-100: 1") << "another parameter's";
}

TEST(SdkSegments, JumpsSplitTheBlock) {
  EXPECT_EQ(text_of({jump(10, 2), jump(11, 3), jump(50, 9, 1), jump(99, 4)}),
            "0-10: 1, 10-11: 2, 11-99: 3, 99-100: 4");
  EXPECT_EQ(text_of({jump(0, 2)}), "0-100: 2");
  EXPECT_EQ(text_of({jump(10, 2), jump(10, 3)}), "0-10: 1, 10-100: 3") << "the later one counts";
}

TEST(SdkSegments, RampsAreSegmentsWithAStep) {
  EXPECT_EQ(text_of({ramp(20, 40, 1, 3)}), "0-20: 1, 20-40: 1 to 2.9, 40-100: 3");
  EXPECT_EQ(text_of({ramp(0, 100, 0, 1)}), "0-100: 0 to 0.99");
  EXPECT_EQ(text_of({ramp(-10, 10, 0, 2)}), "0-10: 1 to 1.9, 10-100: 2");
  EXPECT_EQ(text_of({ramp(-100, 300, 0, 4)}), "0-100: 1 to 1.99");
  EXPECT_EQ(text_of({ramp(90, 200, 1, 111)}), "0-90: 1, 90-100: 1 to 10");
  EXPECT_EQ(text_of({ramp(10, 50, 1, 41), jump(20, 7)}), "0-10: 1, 10-20: 1 to 10, 20-100: 7");
  EXPECT_EQ(text_of({ramp(10, 20, 1, 11), ramp(20, 30, 11, 1)}),
            "0-10: 1, 10-20: 1 to 10, 20-30: 11 to 2, 30-100: 1");
  EXPECT_EQ(text_of({ramp(10, 20, 5, 5)}), "0-10: 1, 10-20: 5, 20-100: 5");
}

TEST(SdkSegments, BadOffsetsOfTheHostDoNoHarm) {
  EXPECT_EQ(text_of({jump(100, 2)}), "0-100: 1");
  EXPECT_EQ(text_of({jump(4000000000, 2)}), "0-100: 1");
  EXPECT_EQ(text_of({jump(50, 2), jump(20, 3)}), "0-50: 1, 50-100: 3");
  EXPECT_EQ(text_of({ramp(60, 20, 2, 3)}), "0-60: 1, 60-100: 3");
}

TEST(SdkSegments, PartOfASegmentKeepsItsLine) {
  const Segment whole{10, 60, 0, 100, -40, 60};
  const Segment part = whole.within(20, 30);
  EXPECT_EQ(part.first, 20U);
  EXPECT_EQ(part.end, 30U);
  EXPECT_EQ(part.at(25), whole.at(25));
  EXPECT_EQ(whole.within(0, 100).frames(), 50U);
}

TEST(SdkEvents, EventsOfALargerSizeAreRead) {
  struct Longer {
    ctxb_parameter_event known;
    double later;
  };
  std::vector<Longer> list{{jump(1, 10), 0}, {jump(2, 20), 0}};
  for (Longer& one : list) one.known.size = sizeof(Longer);
  ctxb_job job{};
  job.size = sizeof job;
  job.events = &list[0].known;
  job.event_count = 2;
  double sum = 0;
  for (const ctxb_parameter_event& event : Events(job)) sum += event.value;
  EXPECT_EQ(sum, 30);
  EXPECT_EQ(Events(job).size(), 2U);
  job.events = nullptr;
  job.event_count = 0;
  EXPECT_TRUE(Events(job).empty());
}

TEST(SdkHost, RestartRequestReachesTheHost) {
  ctxbroker::test::FakeHost host;
  Host(host.raw()).request_restart();
  EXPECT_EQ(host.restarts_asked, 1);
}

}  // namespace
