// SPDX-License-Identifier: Apache-2.0
#include "files/srgb.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace ctxbroker::sample_host {

namespace {

// Positive floats keep their order as integers; their top bits (exponent and 7 bits of the
// fraction) divide the range 0..1 into buckets that hold few codes each.
constexpr int bucket_shift = 16;
constexpr std::uint32_t bucket_count = (std::bit_cast<std::uint32_t>(1.0F) >> bucket_shift) + 1;

float bucket_floor(std::uint32_t bucket) {
  return std::bit_cast<float>(bucket << bucket_shift);
}

// The least float that is not below `exact`.
float round_up(double exact) {
  const float nearest = static_cast<float>(exact);
  if (static_cast<double>(nearest) >= exact) return nearest;
  return std::nextafter(nearest, std::numeric_limits<float>::infinity());
}

}  // namespace

double srgb_to_linear(double encoded) noexcept {
  return encoded <= 0.04045 ? encoded / 12.92 : std::pow((encoded + 0.055) / 1.055, 2.4);
}

double linear_to_srgb(double linear) noexcept {
  return linear <= 0.0031308 ? linear * 12.92 : 1.055 * std::pow(linear, 1 / 2.4) - 0.055;
}

SrgbTables::SrgbTables(int depth) {
  const std::size_t codes = std::size_t{1} << depth;
  const double top = static_cast<double>(codes - 1);
  linear_.resize(codes);
  lower_.resize(codes);
  for (std::size_t code = 0; code < codes; ++code) {
    const double value = static_cast<double>(code);
    linear_[code] = static_cast<float>(srgb_to_linear(value / top));
    lower_[code] = code == 0 ? 0.0F : round_up(srgb_to_linear((value - 0.5) / top));
  }
  lower_.push_back(std::numeric_limits<float>::infinity());
  start_.resize(bucket_count);
  std::size_t code = 0;
  for (std::uint32_t bucket = 0; bucket < bucket_count; ++bucket) {
    while (code + 1 < codes && lower_[code + 1] <= bucket_floor(bucket)) ++code;
    start_[bucket] = static_cast<std::uint16_t>(code);
  }
}

// Within a bucket the curve is almost straight, so the code between the bucket's first and the next
// bucket's is the right one or beside it.
std::uint16_t SrgbTables::encode(float linear) const noexcept {
  if (!(linear > 0.0F)) return 0;
  if (linear >= 1.0F) return static_cast<std::uint16_t>(linear_.size() - 1);
  const auto bits = std::bit_cast<std::uint32_t>(linear);
  const std::uint32_t bucket = bits >> bucket_shift;
  const std::uint32_t part = bits & ((1U << bucket_shift) - 1);
  const std::uint32_t first = start_[bucket];
  std::uint32_t code = first + ((start_[bucket + 1] - first) * part >> bucket_shift);
  while (lower_[code] > linear) --code;
  while (lower_[code + 1] <= linear) ++code;
  return static_cast<std::uint16_t>(code);
}

const SrgbTables& srgb_tables(int depth) {
  static const SrgbTables narrow(8);
  if (depth == 8) return narrow;
  static const SrgbTables wide(16);
  return wide;
}

}  // namespace ctxbroker::sample_host
