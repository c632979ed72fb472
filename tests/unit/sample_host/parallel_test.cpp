// SPDX-License-Identifier: Apache-2.0
#include "files/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace ctxbroker::sample_host::test {
namespace {

TEST(Parallel, EveryPartIsDoneOnce) {
  for (const std::size_t count : {0U, 1U, 2U, 1000U}) {
    std::vector<std::atomic<int>> calls(count);
    for_each_part(count, [&](std::size_t part) { ++calls.at(part); });
    for (const auto& number : calls) ASSERT_EQ(number, 1);
  }
}

TEST(Parallel, EveryRowIsDoneOnce) {
  for (const std::size_t rows : {0U, 1U, 16U, 17U, 1000U}) {
    std::vector<std::atomic<int>> calls(rows);
    for_each_band(rows, [&](std::size_t first, std::size_t end) {
      EXPECT_LT(first, end);
      while (first < end) ++calls.at(first++);
    });
    for (const auto& number : calls) ASSERT_EQ(number, 1);
  }
}

TEST(Parallel, AnExceptionReachesTheCaller) {
  std::atomic<int> ended{0};
  const auto work = [&](std::size_t part) {
    if (part == 3) throw std::runtime_error("part 3");
    ++ended;
  };
  EXPECT_THROW(for_each_part(1'000'000, work), std::runtime_error);
  EXPECT_LT(ended, 1'000'000);
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
