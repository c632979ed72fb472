// SPDX-License-Identifier: Apache-2.0
// Damaged images: an ImageError or PTX, never anything else. The sanitized build is where this
// bites.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>

#include "image_fixtures.hpp"

namespace ctxbroker::image {
namespace {

// From memory that ends where the image ends. Returns whether it was accepted.
bool survives(std::string_view image, int compute = 75) {
  const auto copy = std::make_unique<char[]>(image.size());
  std::memcpy(copy.get(), image.data(), image.size());
  const auto refusal = refusal_of({copy.get(), image.size()}, compute);
  if (refusal) {
    EXPECT_FALSE(refusal->message.empty());
  }
  return !refusal;
}

TEST(Damage, EveryPrefixOfAFatbinIsRefused) {
  const std::string_view image = fixtures::small_fatbin;
  for (std::size_t size = 0; size < image.size(); ++size) {
    EXPECT_FALSE(survives(image.substr(0, size))) << size;
  }
  EXPECT_TRUE(survives(image));
}

TEST(Damage, PrefixesOfACubinAreRefused) {
  for (std::size_t size = 0; size < 256; ++size) {
    EXPECT_FALSE(survives(fixtures::cubin.substr(0, size))) << size;
  }
}

TEST(Damage, EveryFlippedBitOfTheHeadersIsSurvived) {
  for (const std::string_view good :
       {fixtures::small_fatbin, fixtures::unpacked_fatbin, fixtures::speed_fatbin}) {
    std::string image(good);
    for (std::size_t bit = 0; bit < std::size_t{8} * (16 + 80); ++bit) {
      const char mask = static_cast<char>(1U << (bit % 8));
      image[bit / 8] = static_cast<char>(image[bit / 8] ^ mask);
      // The wrapper's magic number would make the rest a pointer: one flip never gives it.
      survives(image);
      image[bit / 8] = static_cast<char>(image[bit / 8] ^ mask);
    }
  }
}

// Among the first `range` bytes.
void change_bytes(std::string_view good, std::size_t range, std::size_t rounds, unsigned seed) {
  std::mt19937 random(seed);
  std::string image(good);
  std::size_t refused = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t at = random() % range;
    const char before = image[at];
    image[at] = static_cast<char>(random());
    if (!survives(image, round % 2 == 0 ? 75 : 90)) ++refused;
    image[at] = before;
  }
  EXPECT_GT(refused, 0U);
}

TEST(Damage, ChangedBytesOfAZstdFatbinAreSurvived) {
  change_bytes(fixtures::small_fatbin, fixtures::small_fatbin.size(), 20'000, 1);
}

TEST(Damage, ChangedBytesOfAnLz4FatbinAreSurvived) {
  change_bytes(fixtures::speed_fatbin, fixtures::speed_fatbin.size(), 5'000, 2);
}

TEST(Damage, ChangedFirstBytesOfAnUnpackedFatbinAreSurvived) {
  change_bytes(fixtures::unpacked_fatbin, 400, 5'000, 3);
}

TEST(Damage, RandomBytesBehindAGoodBeginningAreSurvived) {
  std::mt19937 random(4);
  for (int round = 0; round < 5'000; ++round) {
    std::string image(fixtures::small_fatbin.substr(0, 200));
    const std::size_t keep = random() % image.size();
    for (std::size_t i = keep; i < image.size(); ++i) image[i] = static_cast<char>(random());
    if (keep >= 4) survives(image);
  }
}

}  // namespace
}  // namespace ctxbroker::image
