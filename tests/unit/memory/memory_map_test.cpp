// SPDX-License-Identifier: Apache-2.0
#include "memory/memory_map.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ctxbroker::software {
namespace {

TEST(MemoryMap, FindsTheRangeThatHoldsAnAddress) {
  MemoryMap map;
  map.add({100, 200});
  map.add({300, 301});
  EXPECT_EQ(map.find(100), (AddressRange{100, 200}));
  EXPECT_EQ(map.find(199), (AddressRange{100, 200}));
  EXPECT_EQ(map.find(300), (AddressRange{300, 301}));
  for (std::uintptr_t outside : {0u, 99u, 200u, 299u, 301u}) EXPECT_FALSE(map.find(outside));
}

TEST(MemoryMap, ForgetsARemovedRange) {
  MemoryMap map;
  map.add({100, 200});
  map.remove(100);
  EXPECT_FALSE(map.find(150));
  EXPECT_THROW(map.remove(100), std::out_of_range);
  map.add({150, 160});
  EXPECT_EQ(map.find(150), (AddressRange{150, 160}));
}

TEST(MemoryMap, RefusesEmptyAndOverlappingRanges) {
  MemoryMap map;
  map.add({100, 200});
  EXPECT_THROW(map.add({50, 50}), std::invalid_argument);
  EXPECT_THROW(map.add({60, 50}), std::invalid_argument);
  EXPECT_THROW(map.add({199, 210}), std::invalid_argument);
  EXPECT_THROW(map.add({50, 101}), std::invalid_argument);
  EXPECT_THROW(map.add({120, 130}), std::invalid_argument);
  EXPECT_THROW(map.add({50, 250}), std::invalid_argument);
  map.add({200, 210});
  map.add({90, 100});
  EXPECT_EQ(map.find(100), (AddressRange{100, 200}));
}

TEST(MemoryMap, VersionChangesWithEveryChange) {
  MemoryMap map;
  auto first = map.version();
  map.add({1, 2});
  auto second = map.version();
  map.remove(1);
  EXPECT_NE(first, second);
  EXPECT_NE(second, map.version());
}

TEST(MemoryMap, SnapshotStaysWhatItWas) {
  MemoryMap map;
  EXPECT_TRUE(map.snapshot()->empty());
  map.add({300, 400});
  map.add({100, 200});
  auto before = map.snapshot();
  EXPECT_EQ(before, map.snapshot()) << "made once per version";
  map.remove(100);
  EXPECT_EQ(*before, (AddressRanges{{100, 200}, {300, 400}}));
  EXPECT_EQ(*map.snapshot(), (AddressRanges{{300, 400}}));
  EXPECT_EQ(find_range(*before, 150), (AddressRange{100, 200}));
  for (std::uintptr_t outside : {99u, 200u, 299u, 400u}) EXPECT_FALSE(find_range(*before, outside));
}

TEST(MemoryMap, ReadersAndWritersAtOnce) {
  MemoryMap map;
  map.add({1000000, 1000100});
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int reader = 0; reader < 2; ++reader)
    threads.emplace_back([&] {
      while (!stop) {
        if (map.find(1000050) != AddressRange{1000000, 1000100}) ++wrong;
        if (!find_range(*map.snapshot(), 1000050)) ++wrong;
      }
    });
  for (std::uintptr_t writer = 0; writer < 2; ++writer)
    threads.emplace_back([&map, writer] {
      for (std::uintptr_t i = 0; i < 2000; ++i) {
        std::uintptr_t begin = 1000 * (writer + 1) + i % 7 * 10;
        map.add({begin, begin + 10});
        map.remove(begin);
      }
    });
  threads[2].join();
  threads[3].join();
  stop = true;
  threads[0].join();
  threads[1].join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(map.snapshot()->size(), 1u);
}

}  // namespace
}  // namespace ctxbroker::software
