// SPDX-License-Identifier: Apache-2.0
// The recording: what threads mark is there, in order, within its memory, at no one's cost.
#include "observe/timeline.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "allocations.hpp"
#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::size_t one_chunk = std::size_t{64} << 10;
constexpr std::size_t spans_per_chunk = 511;

void expect_nested(const RecordedThread& thread) {
  std::vector<std::uint64_t> ends;
  for (const Span& span : thread.spans) {
    while (!ends.empty() && ends.back() <= span.begin) ends.pop_back();
    if (!ends.empty()) {
      ASSERT_LE(span.end, ends.back()) << span.verb;
    }
    ends.push_back(span.end);
  }
}

class TimelineTest : public ::testing::Test {
 public:
  ~TimelineTest() override { stop_recording(); }
};

void mark(const char* verb) {
  const ScopedSpan span(SpanCategory::call, verb, "blur", TenantId{3}, 4, 5);
}

TEST_F(TimelineTest, ASpanIsRecordedWithEverything) {
  start_recording(one_chunk);
  const std::uint64_t before = timeline_now();
  {
    ScopedSpan span(SpanCategory::launch, "launch", "blur_rows", TenantId{7}, 11, 13);
    span.set_status(2);
  }
  const std::uint64_t after = timeline_now();
  stop_recording();
  const Recording recording = recorded();
  ASSERT_EQ(recording.threads.size(), 1u);
  ASSERT_EQ(recording.threads[0].spans.size(), 1u);
  const Span& span = recording.threads[0].spans[0];
  EXPECT_LE(recording.started, before);
  EXPECT_LE(before, span.begin);
  EXPECT_LE(span.begin, span.end);
  EXPECT_LE(span.end, after);
  EXPECT_EQ(span.category, SpanCategory::launch);
  EXPECT_STREQ(span.verb, "launch");
  EXPECT_STREQ(span.subject, "blur_rows");
  EXPECT_EQ(span.tenant, 7u);
  EXPECT_EQ(span.values[0], 11u);
  EXPECT_EQ(span.values[1], 13u);
  EXPECT_EQ(span.status, 2);
  EXPECT_EQ(recording.dropped, 0u);
}

TEST_F(TimelineTest, OuterSpansComeFirstAndThreadsApart) {
  start_recording(8 * one_chunk);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 300; ++round) {
        const ScopedSpan outer(SpanCategory::job, "outer", nullptr, host_tenant);
        mark("first");
        mark("second");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  stop_recording();
  const Recording recording = recorded();
  ASSERT_EQ(recording.threads.size(), 4u);
  for (const RecordedThread& thread : recording.threads) {
    ASSERT_EQ(thread.spans.size(), 900u);  // more than a chunk holds
    EXPECT_STREQ(thread.spans[0].verb, "outer");
    EXPECT_STREQ(thread.spans[1].verb, "first");
    EXPECT_STREQ(thread.spans[2].verb, "second");
    expect_nested(thread);
  }
}

TEST_F(TimelineTest, SpansThatDoNotFitAreCounted) {
  start_recording(one_chunk);
  for (std::size_t i = 0; i < spans_per_chunk + 89; ++i) mark("mark");
  std::thread([] { mark("another thread's"); }).join();
  stop_recording();
  const Recording recording = recorded();
  ASSERT_EQ(recording.threads.size(), 1u);
  EXPECT_EQ(recording.threads[0].spans.size(), spans_per_chunk);
  EXPECT_EQ(recording.dropped, 90u);
}

TEST_F(TimelineTest, OnlySpansThatBeganInTheRecordingAreInIt) {
  mark("before");
  start_recording(one_chunk);
  {
    const ScopedSpan across(SpanCategory::job, "across two recordings", nullptr, host_tenant);
    mark("first recording");
    stop_recording();
    mark("between");
    start_recording(one_chunk);
    mark("second recording");
  }
  stop_recording();
  mark("after");
  const Recording recording = recorded();
  ASSERT_EQ(recording.threads.size(), 1u);
  ASSERT_EQ(recording.threads[0].spans.size(), 1u);
  EXPECT_STREQ(recording.threads[0].spans[0].verb, "second recording");
}

TEST_F(TimelineTest, RecordingAllocatesNothing) {
  start_recording(4 * one_chunk);
  const std::uint64_t before = test::allocations;
  for (std::size_t i = 0; i < 3 * spans_per_chunk; ++i) mark("mark");
  const std::uint64_t after = test::allocations;
  stop_recording();
  EXPECT_EQ(after - before, 0u);
  ASSERT_EQ(recorded().threads[0].spans.size(), 3 * spans_per_chunk);
  EXPECT_GT(test::allocations, after);  // what counts does count
}

TEST_F(TimelineTest, StartsAndStopsUnderWorkingThreads) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&over] {
      while (!over.load(std::memory_order_relaxed)) {
        const ScopedSpan outer(SpanCategory::job, "outer", nullptr, host_tenant);
        mark("inner");
      }
    });
  }
  std::uint64_t spans = 0;
  for (std::size_t round = 0; round < 200; ++round) {
    start_recording((1 + round % 8) * one_chunk);
    std::this_thread::yield();
    stop_recording();
    const Recording recording = recorded();
    for (const RecordedThread& thread : recording.threads) {
      expect_nested(thread);
      spans += thread.spans.size();
      for (const Span& span : thread.spans) ASSERT_GE(span.begin, recording.started);
    }
  }
  over.store(true);
  for (auto& thread : threads) thread.join();
  EXPECT_GT(spans, 0u);
}

TEST_F(TimelineTest, StartAndStopInTheWrongOrderAreRefused) {
  const auto kind_of = [](auto&& work) {
    try {
      work();
    } catch (const Error& error) {
      return std::string(to_string(error.kind()));
    }
    return std::string("none");
  };
  EXPECT_EQ(kind_of([] { start_recording(one_chunk - 1); }), "invalid-argument");
  start_recording(one_chunk);
  EXPECT_EQ(kind_of([] { start_recording(one_chunk); }), "wrong-state");
  EXPECT_EQ(kind_of([] { static_cast<void>(recorded()); }), "wrong-state");
  stop_recording();
  stop_recording();
  EXPECT_EQ(kind_of([] { static_cast<void>(recorded()); }), "none");
}

TEST_F(TimelineTest, LongSubjectsAreCutBetweenCharacters) {
  Span span;
  const std::string fits(78, 'x');
  set_subject(span, fits.c_str());
  EXPECT_EQ(span.subject, fits);
  for (std::size_t lead = 0; lead < 4; ++lead) {
    std::string text(lead, 'x');
    while (text.size() < 100) text += "\u20ac";  // three bytes each
    Span cut;
    set_subject(cut, text.c_str());
    const std::string got = cut.subject;
    EXPECT_LE(got.size(), 78u);
    EXPECT_GE(got.size(), 76u);
    ASSERT_TRUE(got.ends_with("\u2026"));
    EXPECT_EQ((got.size() - 3 - lead) % 3, 0u) << lead;
  }
}

}  // namespace
}  // namespace ctxbroker::detail
