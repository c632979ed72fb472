// Who holds what: the table behind it, its lock, and the whole.
#include "gate/owners.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace ctxbroker::detail {
namespace {

using ::testing::ElementsAre;
using Key = std::pair<Kind, std::uint64_t>;

Holding holding(Kind kind, std::uint64_t handle, TenantId tenant = {}, std::uint64_t bytes = 0) {
  Holding one;
  one.kind = kind;
  one.handle = handle;
  one.tenant = tenant;
  one.bytes = bytes;
  return one;
}

// Handles that all belong at one place of a table of 32 places.
std::vector<Key> keys_of_place(std::uint64_t place, std::size_t count) {
  std::vector<Key> keys;
  for (std::uint64_t handle = 16; keys.size() < count; handle += 16) {
    if (HoldingTable::hash(Kind::memory, handle) >> 59 == place) {
      keys.emplace_back(Kind::memory, handle);
    }
  }
  return keys;
}

// Two kinds of one handle, addresses in a row, and more for one place than there is room: at the
// end of the table, which goes on at its beginning.
std::vector<Key> awkward_keys() {
  std::vector<Key> keys = keys_of_place(31, 10);
  for (const Key& key : keys_of_place(29, 6)) keys.push_back(key);
  for (std::uint64_t i = 0; i < 12; ++i) {
    keys.emplace_back(Kind::memory, 0x7f0000000000 + i * 512);
    keys.emplace_back(Kind::graph_memory, 0x7f0000000000 + i * 512);
  }
  return keys;
}

void expect_same(const HoldingTable& table, const std::map<Key, std::uint64_t>& oracle) {
  std::map<Key, std::uint64_t> found;
  std::size_t entries = 0;
  table.each([&](const Holding& one) {
    found[{one.kind, one.handle}] = one.bytes;
    ++entries;
  });
  EXPECT_EQ(found, oracle);
  EXPECT_EQ(entries, oracle.size()) << "one is there twice";
  EXPECT_EQ(table.size(), oracle.size());
}

// Every step is looked at: what is lost by a wrong move may come back with the next growth.
TEST(HoldingTableTest, DoesWhatAMapDoes) {
  const std::vector<Key> keys = awkward_keys();
  for (const std::size_t used : {std::size_t{16}, keys.size()}) {  // one place's, and all
    HoldingTable table;
    std::map<Key, std::uint64_t> oracle;
    std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same each time
    for (std::uint64_t step = 1; step <= 20'000; ++step) {
      const Key key = keys[random() % used];
      Holding* const found = table.find(key.first, key.second);
      ASSERT_EQ(found != nullptr, oracle.count(key) == 1) << step;
      if (found != nullptr) {
        ASSERT_EQ(found->bytes, oracle[key]) << step;
      }
      if (found != nullptr && random() % 8 != 0) {
        EXPECT_EQ(table.take(found).handle, key.second);
        oracle.erase(key);
        ASSERT_EQ(table.find(key.first, key.second), nullptr) << step;
      } else {
        table.put(holding(key.first, key.second, {}, step));
        oracle[key] = step;
      }
      if (step % 100 == 0) expect_same(table, oracle);
    }
    EXPECT_LE(table.capacity(), 64U) << "what was taken out has left no mark";
  }
}

TEST(HoldingTableTest, GrowsAndGivesItsMemoryBackAtTheEnd) {
  HoldingTable table;
  EXPECT_EQ(table.capacity(), 0U);
  EXPECT_EQ(table.find(Kind::memory, 0), nullptr);
  std::map<Key, std::uint64_t> oracle;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    table.put(holding(Kind::memory, i * 512, {}, i));
    oracle[{Kind::memory, i * 512}] = i;
  }
  expect_same(table, oracle);
  EXPECT_LE(table.capacity(), std::size_t{1} << 15);
  while (!oracle.empty()) {
    const auto& [kind, handle] = oracle.begin()->first;
    Holding* const found = table.find(kind, handle);
    ASSERT_NE(found, nullptr) << handle;
    EXPECT_EQ(table.take(found).bytes, oracle.begin()->second);
    oracle.erase(oracle.begin());
  }
  EXPECT_EQ(table.capacity(), 0U);
}

TEST(BriefLockTest, LetsInOneAtATime) {
  BriefLock lock;
  unsigned sum = 0;  // a plain one
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20'000; ++round) {
        const std::lock_guard held(lock);
        const unsigned before = sum;
        if (round % 512 == 0) std::this_thread::yield();  // the others find it taken, and sleep
        sum = before + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 80'000U);
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
