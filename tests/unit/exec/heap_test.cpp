// SPDX-License-Identifier: Apache-2.0
// What kernels allocate. What a GPU answers was asked of an H100 with driver 580.
#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "exec/device_heap.hpp"
#include "support.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view heap_ptx;
extern const std::string_view heap_90_ptx;
}  // namespace ctxbroker::fixtures

namespace ctxbroker::software::exec::testing {
namespace {

using Address = std::uint64_t;
constexpr std::size_t heap_bytes = 1 << 20;

TEST(Heap, BlocksAreSeparateAlignedAndReused) {
  std::vector<std::max_align_t> memory(4096 / sizeof(std::max_align_t));
  DeviceHeap heap(reinterpret_cast<std::byte*>(memory.data()), 4096);
  const auto begin = reinterpret_cast<Address>(memory.data());
  for (int round = 0; round < 3; ++round) {
    std::set<Address> blocks;
    for (Address block = heap.allocate(100); block != 0; block = heap.allocate(100)) {
      EXPECT_EQ(block % 16, 0U);
      EXPECT_GE(block, begin);
      EXPECT_LE(block + 100, begin + 4096);
      const auto next = blocks.lower_bound(block);
      EXPECT_TRUE(next == blocks.end() || block + 100 <= *next);
      EXPECT_TRUE(next == blocks.begin() || *std::prev(next) + 100 <= block);
      blocks.insert(block);
    }
    EXPECT_EQ(blocks.size(), 4096U / 128);
    for (const Address block : blocks) EXPECT_TRUE(heap.release(block));
    for (const Address block : blocks) EXPECT_FALSE(heap.release(block));
    const Address whole = heap.allocate(4096 - 16);
    EXPECT_EQ(whole, begin) << "what is free lies in one piece again";
    EXPECT_EQ(heap.allocate(0), 0U);
    EXPECT_TRUE(heap.release(whole));
  }
  EXPECT_NE(heap.allocate(0), heap.allocate(0));
  EXPECT_EQ(heap.allocate(~Address{0}), 0U);
  EXPECT_FALSE(heap.release(begin + 8));
}

// A device with a heap, for each text that nvcc writes.
template <class Check>
void with_heap(Check check) {
  for (const std::string_view ptx : {fixtures::heap_ptx, fixtures::heap_90_ptx}) {
    for (const Config& config : all_configs()) {
      SCOPED_TRACE(name_of(config));
      Device device{std::string(ptx)};
      void* memory = device.allocate(heap_bytes);
      DeviceHeap heap(static_cast<std::byte*>(memory), heap_bytes);
      device.use_heap(&heap);
      check(device, config);
      if (::testing::Test::HasFatalFailure()) return;
      // Whatever the kernels did, they gave everything back.
      EXPECT_NE(heap.allocate(heap_bytes - 16), 0U);
    }
  }
}

TEST(Heap, BlocksLiveFromLaunchToLaunch) {
  with_heap([](Device& device, const Config& config) {
    constexpr std::uint32_t all = 3 * 70;
    auto* lists = device.upload(std::vector<Address>(all));
    int* sums = device.upload(std::vector<int>(all));
    const int length = 9;
    ASSERT_EQ(device.launch(config, "make_lists", {3}, {70}, Arguments(lists, length)).fault,
              Fault::none);
    ASSERT_EQ(device.launch(config, "sum_and_free_lists", {3}, {70}, Arguments(lists, sums)).fault,
              Fault::none);
    for (int i = 0; i < static_cast<int>(all); ++i) EXPECT_EQ(sums[i], length * 100 * i + 36);
  });
}

TEST(Heap, ObjectsWithVirtualDestructors) {
  with_heap([](Device& device, const Config& config) {
    constexpr int threads = 100;
    int* out = device.upload(std::vector<int>(threads));
    const Outcome outcome = device.launch(config, "shapes", {1}, {threads}, Arguments(out));
    ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
    for (int i = 0; i < threads; ++i) {
      int area = i * i;
      for (int k = 0; k < i % 4; ++k) area += (k + 1) * (k + 1);
      EXPECT_EQ(out[i], area) << i;
    }
  });
}

TEST(Heap, AllocationFromAFullOrMissingHeapIsNull) {
  with_heap([](Device& device, const Config& config) {
    auto* out = device.upload(std::vector<Address>(64));
    const auto give = [&](Address size) {
      EXPECT_EQ(device.launch(config, "give_blocks", {1}, {64}, Arguments(out, size)).fault,
                Fault::none);
      return std::set<Address>(out, out + 64);
    };
    EXPECT_EQ(give(heap_bytes), std::set<Address>{0});
    const std::set<Address> blocks = give(heap_bytes / 8);
    EXPECT_EQ(blocks.size(), 1U + 7U) << "seven blocks and null";
    for (const Address block : blocks) {
      EXPECT_EQ(device.launch(config, "free_block", {1}, {1}, Arguments(out, block)).fault,
                Fault::none);
    }
    device.use_heap(nullptr);
    EXPECT_EQ(give(1), std::set<Address>{0});
  });
}

// Each of these faults is named. An H100 returns status 719 or reports nothing at all.
TEST(Heap, AFreeOfWhatIsNoBlockIsAFault) {
  with_heap([](Device& device, const Config& config) {
    auto* out = device.upload(std::vector<Address>(64));
    const auto free_block = [&](Address address) {
      return device.launch(config, "free_block", {1}, {1}, Arguments(out, address));
    };
    ASSERT_EQ(device.launch(config, "give_blocks", {1}, {1}, Arguments(out, Address{64})).fault,
              Fault::none);
    const Address block = *out;
    EXPECT_EQ(free_block(0).fault, Fault::none);
    EXPECT_EQ(free_block(block + 3).fault, Fault::misaligned_address);
    const Outcome inside = free_block(block + 16);
    EXPECT_EQ(inside.fault, Fault::bad_free);
    EXPECT_NE(inside.message.find("no block that malloc gave"), std::string::npos)
        << inside.message;
    EXPECT_EQ(free_block(reinterpret_cast<Address>(out)).fault, Fault::bad_free);
    EXPECT_EQ(free_block(block).fault, Fault::none);
    EXPECT_EQ(free_block(block).fault, Fault::bad_free);
  });
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
