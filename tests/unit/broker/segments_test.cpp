// SPDX-License-Identifier: Apache-2.0
#include "context/segments.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t segment_mib = std::uint64_t{1} << 20;
constexpr std::uint64_t segment_unit = 2 * segment_mib;
constexpr std::uint64_t first_segment = std::uint64_t{1} << 40;

class SegmentsTest : public ::testing::Test {
 protected:
  // Takes a block, and adds a segment if there is no room. The segments adjoin.
  std::uint64_t take(std::uint64_t bytes) {
    if (const auto block = segments.take(bytes)) return *block;
    const std::uint64_t whole = Segments::bytes_for(bytes, segment_unit);
    const std::uint64_t block = segments.add({next, whole}, bytes);
    sizes[next] = whole;
    next += whole;
    return block;
  }
  bool lies_within_one(std::uint64_t begin, std::uint64_t bytes) const {
    const auto [start, size] = *std::prev(sizes.upper_bound(begin));
    return begin + bytes <= start + size;
  }

  Segments segments;
  std::map<std::uint64_t, std::uint64_t> sizes;
  std::uint64_t next = first_segment;
};

TEST_F(SegmentsTest, SmallBlocksShareASegmentAndAreAligned) {
  const std::uint64_t first = take(1), second = take(513), third = take(512);
  EXPECT_EQ(first, first_segment);
  EXPECT_EQ(second, first + 512);
  EXPECT_EQ(third, second + 1024);
  EXPECT_EQ(sizes.size(), 1U);
  EXPECT_EQ(segments.free_bytes(), segment_unit - 2048);
}

TEST_F(SegmentsTest, FreedNeighboursAreOneRangeAgain) {
  std::vector<std::uint64_t> blocks(4);
  for (std::uint64_t& one : blocks) one = take(segment_mib / 2);
  EXPECT_FALSE(segments.take(512)) << "the segment is full";
  for (const int which : {1, 3, 2}) EXPECT_TRUE(segments.give(blocks[which]));
  EXPECT_EQ(segments.take(segment_mib), blocks[1]);
  EXPECT_EQ(segments.take(segment_mib / 2), blocks[3]);
}

TEST_F(SegmentsTest, BlocksDoNotCrossFromOneSegmentToTheNext) {
  const std::uint64_t first = take(segment_mib), second = take(segment_mib);
  const std::uint64_t third = take(segment_mib), fourth = take(segment_mib);
  EXPECT_EQ(third, first_segment + segment_unit) << "the segments adjoin";
  EXPECT_TRUE(segments.give(second));
  EXPECT_TRUE(segments.give(third));
  EXPECT_FALSE(segments.take(segment_unit));
  EXPECT_TRUE(segments.give(first));
  EXPECT_TRUE(segments.give(fourth));
}

TEST_F(SegmentsTest, LargeBlockHasASegmentOfItsSize) {
  EXPECT_EQ(Segments::bytes_for(5 * segment_mib, segment_unit), 6 * segment_mib);
  const std::uint64_t large = take(5 * segment_mib);
  EXPECT_FALSE(segments.take(512)) << "no small block gets the rest";
  EXPECT_TRUE(segments.give(large));
  EXPECT_EQ(segments.free_bytes(), 6 * segment_mib);
}

TEST_F(SegmentsTest, FreeSegmentGoesToTheNextBlockOfAboutItsSize) {
  const std::uint64_t large = take(40 * segment_mib), larger = take(48 * segment_mib);
  EXPECT_TRUE(segments.give(large));
  EXPECT_TRUE(segments.give(larger));
  EXPECT_FALSE(segments.take(20 * segment_mib)) << "much too large";
  EXPECT_FALSE(segments.take(49 * segment_mib));
  EXPECT_EQ(segments.take(39 * segment_mib), large) << "the smaller one that fits";
  EXPECT_EQ(segments.take(39 * segment_mib), larger);
}

TEST_F(SegmentsTest, LargeBlockGetsAFreeSharedSegment) {
  EXPECT_TRUE(segments.give(take(512)));
  EXPECT_EQ(segments.take(segment_unit), first_segment);
}

TEST_F(SegmentsTest, OnlyBeginningsOfBlocksAreGivenBack) {
  EXPECT_FALSE(segments.give(first_segment)) << "there is nothing";
  const std::uint64_t block = take(2048);
  EXPECT_FALSE(segments.give(block + 512));
  EXPECT_FALSE(segments.give(block - 512));
  EXPECT_FALSE(segments.give(block + 2048)) << "a free range";
  EXPECT_TRUE(segments.give(block));
  EXPECT_FALSE(segments.give(block)) << "twice";
}

TEST_F(SegmentsTest, UnusedSegmentsAreTakenOut) {
  const std::uint64_t small = take(512), large = take(8 * segment_mib);
  EXPECT_FALSE(segments.has_unused());
  EXPECT_TRUE(segments.take_unused().empty());
  EXPECT_TRUE(segments.give(large));
  EXPECT_TRUE(segments.has_unused());
  const auto unused = segments.take_unused();
  ASSERT_EQ(unused.size(), 1U);
  EXPECT_EQ(unused[0].begin, large);
  EXPECT_EQ(unused[0].bytes, 8 * segment_mib);
  EXPECT_FALSE(segments.take(8 * segment_mib)) << "it is not there any more";
  EXPECT_FALSE(segments.give(large));
  EXPECT_TRUE(segments.give(small)) << "the other one is";
  EXPECT_EQ(segments.take_all().size(), 1U);
  EXPECT_EQ(segments.free_bytes(), 0U);
}

TEST_F(SegmentsTest, LastingSegmentStaysAndServesBlocksOfAllSizes) {
  segments.add_lasting({next, 16 * segment_mib});
  const auto large = segments.take(10 * segment_mib), small = segments.take(100);
  EXPECT_EQ(large, next);
  EXPECT_EQ(small, next + 10 * segment_mib);
  EXPECT_TRUE(segments.give(*large));
  EXPECT_TRUE(segments.give(*small));
  EXPECT_FALSE(segments.has_unused());
  EXPECT_TRUE(segments.take_unused().empty());
  EXPECT_EQ(segments.free_bytes(), 16 * segment_mib);
  EXPECT_EQ(segments.take_all().size(), 1U);
}

TEST_F(SegmentsTest, SizesThatDoNotFitInAnySegmentAreRefused) {
  EXPECT_EQ(Segments::bytes_for(~std::uint64_t{0}, segment_unit), 0U);
  EXPECT_EQ(Segments::bytes_for(512, 0), 0U);
  EXPECT_FALSE(segments.take(~std::uint64_t{0}));
}

TEST_F(SegmentsTest, BlocksNeverOverlap) {
  std::mt19937 random(7);
  std::map<std::uint64_t, std::uint64_t> taken;
  for (int i = 0; i < 20'000; ++i) {
    if (!taken.empty() && random() % 2 == 0) {
      auto one = taken.lower_bound(first_segment + random() % (next - first_segment));
      if (one == taken.end()) one = taken.begin();
      ASSERT_TRUE(segments.give(one->first));
      taken.erase(one);
      continue;
    }
    const std::uint64_t bytes = 1 + random() % (i % 50 == 0 ? 4 * segment_mib : 30'000);
    const std::uint64_t begin = take(bytes);
    ASSERT_TRUE(lies_within_one(begin, bytes));
    const auto after = taken.lower_bound(begin);
    ASSERT_TRUE(after == taken.end() || begin + bytes <= after->first);
    ASSERT_TRUE(after == taken.begin() ||
                std::prev(after)->first + std::prev(after)->second <= begin);
    taken[begin] = bytes;
  }
  for (const auto& [begin, bytes] : taken) EXPECT_TRUE(segments.give(begin));
  std::uint64_t all = 0;
  for (const auto& [begin, bytes] : sizes) all += bytes;
  EXPECT_EQ(segments.free_bytes(), all);
  EXPECT_EQ(segments.take_unused().size(), sizes.size());
}

}  // namespace
}  // namespace ctxbroker::detail
