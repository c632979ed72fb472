// SPDX-License-Identifier: Apache-2.0
#include "process/copy_crew.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <thread>
#include <vector>

namespace ctxbroker::detail {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes made(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    made[i] = static_cast<unsigned char>((i * 2654435761U + seed) >> 13);
  }
  return made;
}

TEST(CopyCrewTest, CopiesEveryByteAndNoOther) {
  for (const unsigned helpers : {0U, 1U, 3U}) {
    CopyCrew crew;
    crew.start(helpers);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, CopyCrew::least_bytes - 1,
                                    CopyCrew::least_bytes, 3 * CopyCrew::least_bytes + 777}) {
      const Bytes from = pattern(bytes, helpers);
      Bytes to(bytes + 64, 0xAA);
      crew.copy(to.data() + 32, from.data(), bytes);
      EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin() + 32)) << bytes;
      EXPECT_THAT(Bytes(to.begin(), to.begin() + 32), ::testing::Each(0xAA));
      EXPECT_THAT(Bytes(to.end() - 32, to.end()), ::testing::Each(0xAA));
    }
  }
}

TEST(CopyCrewTest, SeveralThreadsCopyAtOnce) {
  CopyCrew crew;
  crew.start(2);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&crew, seed] {
      const Bytes from = pattern(CopyCrew::least_bytes + seed, seed);
      for (int i = 0; i < 20; ++i) {
        Bytes to(from.size());
        crew.copy(to.data(), from.data(), from.size());
        EXPECT_EQ(to, from);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CopyCrewTest, ASecondStartAddsNoHelpers) {
  CopyCrew crew;
  crew.start(1);
  crew.start(1);
  const Bytes from = pattern(CopyCrew::least_bytes, 1);
  Bytes to(from.size());
  crew.copy(to.data(), from.data(), from.size());
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace ctxbroker::detail
