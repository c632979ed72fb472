// SPDX-License-Identifier: Apache-2.0
#include "files/srgb.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ctxbroker::sample_host {
namespace {

class SrgbTablesTest : public testing::TestWithParam<int> {};

TEST_P(SrgbTablesTest, EveryCodeComesBack) {
  const SrgbTables tables(GetParam());
  for (std::uint32_t code = 0; code < 1U << GetParam(); ++code) {
    ASSERT_EQ(tables.encode(tables.decode(static_cast<std::uint16_t>(code))), code);
  }
}

TEST_P(SrgbTablesTest, RoundsToTheNearestCode) {
  const SrgbTables tables(GetParam());
  const double top = (1U << GetParam()) - 1;
  for (int i = 0; i <= 200000; ++i) {
    const float linear = static_cast<float>(std::pow(i / 200000.0, 3));
    const double exact = linear_to_srgb(static_cast<double>(linear)) * top;
    // At a tie, and where the curve's two halves meet, the last digits decide.
    ASSERT_LE(std::abs(exact - tables.encode(linear)), 0.5001) << linear;
  }
}

// The two floats beside the border between two codes belong to one each.
TEST_P(SrgbTablesTest, FloatsBesideACodesBorderBelongToOneCodeEach) {
  const SrgbTables tables(GetParam());
  const double top = (1U << GetParam()) - 1;
  for (std::uint32_t code = 1; code < 1U << GetParam(); ++code) {
    const double border = srgb_to_linear((code - 0.5) / top);
    float above = static_cast<float>(border);
    if (static_cast<double>(above) < border) above = std::nextafter(above, 1.0F);
    ASSERT_EQ(tables.encode(above), code);
    ASSERT_EQ(tables.encode(std::nextafter(above, 0.0F)), code - 1);
  }
}

TEST_P(SrgbTablesTest, ValuesOutsideOfTheRangeAreClamped) {
  const SrgbTables tables(GetParam());
  const std::uint32_t top = (1U << GetParam()) - 1;
  EXPECT_EQ(tables.encode(-0.5F), 0U);
  EXPECT_EQ(tables.encode(-0.0F), 0U);
  EXPECT_EQ(tables.encode(std::numeric_limits<float>::quiet_NaN()), 0U);
  EXPECT_EQ(tables.encode(std::numeric_limits<float>::denorm_min()), 0U);
  EXPECT_EQ(tables.encode(1.0F), top);
  EXPECT_EQ(tables.encode(std::nextafter(1.0F, 0.0F)), top);
  EXPECT_EQ(tables.encode(7.0F), top);
  EXPECT_EQ(tables.encode(std::numeric_limits<float>::infinity()), top);
  EXPECT_EQ(tables.encode(-std::numeric_limits<float>::infinity()), 0U);
}

INSTANTIATE_TEST_SUITE_P(Depths, SrgbTablesTest, testing::Values(8, 16));

TEST(Srgb, KnownValuesAreConverted) {
  EXPECT_NEAR(srgb_to_linear(0.5), 0.21404114, 1e-8);
  EXPECT_NEAR(linear_to_srgb(0.18), 0.46135612, 1e-8);
  EXPECT_DOUBLE_EQ(srgb_to_linear(1.0), 1.0);
  EXPECT_DOUBLE_EQ(srgb_to_linear(0.0), 0.0);
}

}  // namespace
}  // namespace ctxbroker::sample_host
