// SPDX-License-Identifier: Apache-2.0
// The addresses of the tenants' code: what readers without a lock see, and what they cost.
#include "gate/tenant_code.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "allocations.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uintptr_t step = 0x10000, bytes = 0x1000;

// A library at an address, whose tenant and path tell that address. Nobody looks into them.
TenantCode library_at(std::uintptr_t begin) {
  return {{begin, begin + bytes},
          reinterpret_cast<GatedTenant*>(begin),
          reinterpret_cast<const char*>(begin)};
}

// As many libraries, from an address upwards.
std::vector<TenantCode> ranges_from(std::uintptr_t first, std::size_t count) {
  std::vector<TenantCode> ranges;
  for (std::size_t i = 0; i < count; ++i) ranges.push_back(library_at(first + i * step));
  return ranges;
}

TenantCode found_at(std::uintptr_t address) {
  return tenant_code_at(reinterpret_cast<const void*>(address));
}

template <std::size_t count>
bool may_point(const std::array<std::uintptr_t, count>& words) {
  return may_point_into_tenants(words.data(), words.data() + count);
}
bool may_point(std::uintptr_t word) {
  return may_point(std::array{word});
}

// Nobody's code is a tenant's in this program.
class TenantCodeTest : public testing::Test {
 protected:
  TenantCodeTest() { publish_tenant_code({}, false); }
  ~TenantCodeTest() override { publish_tenant_code({}, false); }
};

TEST_F(TenantCodeTest, WordCountsFromTheFirstByteToTheOneBehindTheLast) {
  publish_tenant_code(ranges_from(step, 3), false);
  for (const std::uintptr_t range : {step, 2 * step, 3 * step}) {
    EXPECT_FALSE(may_point(range - 1));
    EXPECT_TRUE(may_point(range));
    EXPECT_TRUE(may_point(range + bytes)) << "a call that does not return may be the last one";
    EXPECT_FALSE(may_point(range + bytes + 1));
  }
  EXPECT_FALSE(may_point(std::array<std::uintptr_t, 0>{}));
}

TEST_F(TenantCodeTest, EverythingCountsWhileALibraryArrives) {
  publish_tenant_code({}, true);
  EXPECT_TRUE(may_point(1));
  publish_tenant_code({}, false);
  EXPECT_FALSE(may_point(1));
}

TEST_F(TenantCodeTest, FewerRangesLeaveNothingOfFormerOnes) {
  publish_tenant_code(ranges_from(step, 100), false);
  EXPECT_TRUE(may_point(100 * step));
  publish_tenant_code(ranges_from(step, 1), false);
  EXPECT_TRUE(may_point(step));
  EXPECT_FALSE(may_point(100 * step));
}

TEST_F(TenantCodeTest, LibraryIsFoundByEachAddressInIt) {
  EXPECT_EQ(found_at(step).tenant, nullptr) << "there is none";
  publish_tenant_code(ranges_from(step, 3), false);
  for (const std::uintptr_t begin : {step, 2 * step, 3 * step}) {
    EXPECT_EQ(found_at(begin - 1).tenant, nullptr);
    EXPECT_EQ(found_at(begin).tenant, library_at(begin).tenant);
    EXPECT_EQ(found_at(begin + bytes - 1).path, library_at(begin).path);
    EXPECT_EQ(found_at(begin + bytes).tenant, nullptr);
  }
}

TEST_F(TenantCodeTest, LibraryThatLeavesHasNoTenantAndIsStillLookedFor) {
  std::vector<TenantCode> libraries = ranges_from(step, 2);
  libraries[0].tenant = nullptr;
  publish_tenant_code(libraries, false);
  EXPECT_EQ(found_at(step).tenant, nullptr);
  EXPECT_TRUE(may_point(step));
  EXPECT_EQ(found_at(2 * step).tenant, library_at(2 * step).tenant) << "the control";
}

TEST_F(TenantCodeTest, NumberOfTheOwnersIsAnotherOneAfterEachChange) {
  const std::uint64_t before = owners_of_code();
  EXPECT_EQ(owners_of_code(), before) << "the control";
  publish_tenant_code({}, false);
  EXPECT_NE(owners_of_code(), before);
}

// Each set has one of the two words, so a reader that misses both has read parts of two sets.
TEST_F(TenantCodeTest, ReadersNeverMissWhatIsAlwaysThere) {
  constexpr std::uintptr_t low = step, high = 1000 * step;
  const std::array<std::uintptr_t, 2> words{low, high};
  // More and more, so that readers also meet the change to more room.
  std::vector<std::vector<TenantCode>> sets;
  for (std::size_t count = 1; count <= 300; ++count) {
    sets.push_back(ranges_from(count % 2 == 0 ? low : high, count));
  }
  publish_tenant_code(sets.front(), false);
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> missed{0}, mixed{0}, found{0}, went_back{0}, allocated{0}, reads{0};
  const auto read = [&] {
    const std::uint64_t allocations = test::allocations;
    std::uint64_t latest = 0;
    while (!is_over.load()) {
      const std::uint64_t now = owners_of_code();
      if (now < latest) ++went_back;
      latest = now;
      if (!may_point(words)) ++missed;
      const TenantCode library = found_at(high);
      const TenantCode whole = library_at(library.code.begin);
      if (library.tenant != nullptr) ++found;
      if (library.tenant != nullptr &&
          (library.tenant != whole.tenant || library.path != whole.path)) {
        ++mixed;
      }
      ++reads;
    }
    allocated += test::allocations - allocations;
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) readers.emplace_back(read);
  while (reads.load() == 0) std::this_thread::yield();
  for (int round = 0; round < 50; ++round) {
    for (const std::vector<TenantCode>& set : sets) publish_tenant_code(set, false);
    std::this_thread::yield();
  }
  is_over = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(missed, 0u);
  EXPECT_EQ(mixed, 0u);
  EXPECT_GT(found, 0u);
  EXPECT_EQ(went_back, 0u);
  EXPECT_EQ(allocated, 0u) << "readers may be in a signal's handler";
  EXPECT_FALSE(may_point(500 * step)) << "the control: what is in no set is not always found";
}

TEST_F(TenantCodeTest, ChangesTakeNoMemoryWhenThereIsRoom) {
  const std::vector<TenantCode> most = ranges_from(step, 200), fewer = ranges_from(step, 100);
  publish_tenant_code(most, false);
  const std::uint64_t before = test::allocations;
  for (int change = 0; change < 10'000; ++change) {
    publish_tenant_code(change % 2 == 0 ? fewer : most, change % 3 == 0);
  }
  EXPECT_EQ(test::allocations, before);
  publish_tenant_code(std::vector<TenantCode>(most), false);
  EXPECT_EQ(test::allocations, before + 1) << "the control: a copy counts";
}

TEST_F(TenantCodeTest, RoomDoublesWhenRangesComeOneByOne) {
  constexpr std::size_t most = 4096, doublings = 12;
  std::vector<TenantCode> ranges;
  ranges.reserve(most);
  const std::uint64_t before = test::allocations;
  while (ranges.size() < most) {
    ranges.push_back(library_at((ranges.size() + 1) * step));
    publish_tenant_code(ranges, false);
  }
  // One for the room, one for its ranges.
  EXPECT_LE(test::allocations - before, 2 * (doublings + 1));
  EXPECT_TRUE(may_point(most * step));
}

}  // namespace
}  // namespace ctxbroker::detail
