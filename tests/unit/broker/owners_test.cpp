// Who holds what.
#include "gate/owners.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace ctxbroker::detail {
namespace {

using ::testing::ElementsAre;

Holding holding(Kind kind, std::uint64_t handle, TenantId tenant = {}, std::uint64_t bytes = 0) {
  Holding one;
  one.kind = kind;
  one.handle = handle;
  one.tenant = tenant;
  one.bytes = bytes;
  return one;
}

// Each has handles of its own and some that are everybody's, of which each ends what it made.
TEST(OwnersTest, ManyThreadsAtOnce) {
  Owners all;
  constexpr std::uint64_t rounds = 3'000, kept = 40, shared = 8;
  constexpr unsigned thread_count = 6;
  std::atomic<bool> done{false};
  std::thread looker([&] {
    while (!done) {
      for (unsigned i = 0; i < thread_count; ++i) {
        for (const Holding& one : all.held_by(TenantId{i + 1})) EXPECT_EQ(one.bytes, i + 1);
      }
    }
  });
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < thread_count; ++i) {
    threads.emplace_back([&, i] {
      const TenantId tenant{i + 1};
      for (std::uint64_t round = 0; round < rounds; ++round) {
        const std::uint64_t handle = (round * thread_count + i) * 512;
        all.add(holding(Kind::memory, handle, tenant, i + 1));
        EXPECT_EQ(all.owner(Kind::memory, handle), tenant);
        if (round >= kept) {
          EXPECT_TRUE(
              all.remove(Kind::memory, handle - kept * thread_count * 512, tenant).has_value());
        }
        all.add(holding(Kind::event, round % shared, tenant, i + 1));
        if (const auto ended = all.remove(Kind::event, round % shared, tenant)) {
          EXPECT_EQ(ended->bytes, i + 1);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  looker.join();
  for (unsigned i = 0; i < thread_count; ++i) {
    const auto left = all.held_by(TenantId{i + 1});
    const auto memory = std::count_if(left.begin(), left.end(),
                                      [](const Holding& one) { return one.kind == Kind::memory; });
    EXPECT_EQ(memory, static_cast<std::ptrdiff_t>(kept));
  }
}

TEST(OwnersTest, AHandleIsItsHoldersUntilItEnds) {
  Owners all;
  const TenantId one{1'000'001}, two{1'000'002};
  all.add(holding(Kind::stream, 0x1000, one));
  all.add(holding(Kind::event, 0x1000, two));  // another kind of thing
  EXPECT_EQ(all.owner(Kind::stream, 0x1000), one);
  EXPECT_FALSE(all.remove(Kind::stream, 0x1000, two).has_value());
  EXPECT_TRUE(all.remove(Kind::stream, 0x1000, one).has_value());
  EXPECT_FALSE(all.owner(Kind::stream, 0x1000).has_value());
  EXPECT_EQ(all.owner(Kind::event, 0x1000), two);
  EXPECT_TRUE(all.remove(Kind::event, 0x1000).has_value());
}

TEST(OwnersTest, WhatATenantHoldsComesInTheOrderInWhichItIsGivenBack) {
  Owners all;
  const TenantId one{1'000'003};
  for (const Kind kind : {Kind::context, Kind::memory, Kind::stream, Kind::graph_exec}) {
    all.add(holding(kind, 0x2000, one));
  }
  std::vector<Kind> kinds;
  for (const Holding& holding : all.held_by(one)) {
    kinds.push_back(holding.kind);
    EXPECT_TRUE(all.remove(holding.kind, holding.handle, one).has_value());
  }
  EXPECT_THAT(kinds, ElementsAre(Kind::graph_exec, Kind::stream, Kind::memory, Kind::context));
  EXPECT_TRUE(all.held_by(one).empty());
}

TEST(OwnersTest, AContextTakesAlongWhatWasMadeInIt) {
  Owners all;
  const TenantId one{1'000'004};
  Holding inside = holding(Kind::memory, 0x3000, one), outside = holding(Kind::memory, 0x4000, one);
  inside.bytes = outside.bytes = 64;
  inside.context = 0xc0;
  outside.context = 0xd0;
  all.add(inside);
  all.add(outside);
  EXPECT_EQ(all.forget_context(one, 0xc0), 64U);
  EXPECT_FALSE(all.owner(Kind::memory, 0x3000).has_value());
  EXPECT_TRUE(all.remove(Kind::memory, 0x4000).has_value());
}

}  // namespace
}  // namespace ctxbroker::detail
