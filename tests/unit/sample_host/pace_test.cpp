// SPDX-License-Identifier: Apache-2.0
#include "pace.hpp"

#include <gtest/gtest.h>

namespace ctxbroker::sample_host {
namespace {

using namespace std::chrono_literals;

TEST(PaceTest, FramesAreDueByTheSampleRateAndNothingAddsUp) {
  EXPECT_EQ(due_time(0, 48000), 0ns);
  EXPECT_EQ(due_time(64, 48000), 1'333'333ns);
  EXPECT_EQ(due_time(48, 48000), 1ms);
  EXPECT_EQ(due_time(44100, 44100), 1s);
  EXPECT_EQ(due_time(2, 3), 666'666'666ns);
  EXPECT_EQ(due_time(std::int64_t{44100} * 86400 * 365, 44100), 24h * 365);
  EXPECT_EQ(due_time(std::int64_t{1'000'000} * 86400 + 1, 1'000'000), 24h + 1us);
}

TEST(PaceTest, ResultsAfterTheNextBlockIsDueAreMissedDeadlines) {
  Deadlines deadlines;
  deadlines.add(0ms, 1ms, 2ms);
  deadlines.add(2ms, 4ms, 4ms);  // in time, at the last moment
  deadlines.add(4ms, 9ms, 6ms);
  deadlines.add(9ms, 10ms, 8ms);  // begun too late
  deadlines.add(10ms, 10ms, 10ms);
  const PaceFacts facts = deadlines.facts();
  EXPECT_EQ(facts.blocks, 5U);
  EXPECT_EQ(facts.missed_deadlines, 2U);
  EXPECT_EQ(facts.latest, 3000);
  EXPECT_EQ(facts.p50, 1000);
  EXPECT_EQ(facts.worst, 5000);
}

TEST(PaceTest, PercentilesAreOfNearestRank) {
  Deadlines deadlines;
  for (int i = 1000; i > 0; --i) deadlines.add(0us, i * 1us, 10us);
  const PaceFacts facts = deadlines.facts();
  EXPECT_EQ(facts.p50, 500);
  EXPECT_EQ(facts.p99, 990);
  EXPECT_EQ(facts.p999, 999);
  EXPECT_EQ(facts.worst, 1000);
  EXPECT_EQ(facts.missed_deadlines, 990U);
  EXPECT_EQ(facts.latest, 990);
}

TEST(PaceTest, WithoutBlocksAllFactsAreZero) {
  const PaceFacts facts = Deadlines().facts();
  EXPECT_EQ(facts.blocks, 0U);
  EXPECT_EQ(facts.missed_deadlines, 0U);
  EXPECT_EQ(facts.p50 + facts.p99 + facts.p999 + facts.worst + facts.latest, 0);
}

// A busy machine can only make it later.
TEST(PaceTest, BlockBeginsNoEarlierThanItIsDue) {
  const auto start = std::chrono::steady_clock::now();
  Pace pace(1000);
  for (std::int64_t frame = 0; frame <= 20; frame += 10) {
    pace.begin(frame);
    EXPECT_GE(std::chrono::steady_clock::now() - start, frame * 1ms);
    pace.end(frame + 10);
  }
  EXPECT_EQ(pace.facts().blocks, 3U);
  EXPECT_GE(pace.seconds_slept(), 0);
}

TEST(PaceTest, FirstBlockIsDueAtOnce) {
  Pace pace(1);
  pace.begin(3600);
  pace.end(7200);
  EXPECT_EQ(pace.facts().missed_deadlines, 0U) << "the next one is due in an hour";
}

}  // namespace
}  // namespace ctxbroker::sample_host
