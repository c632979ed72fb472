// SPDX-License-Identifier: Apache-2.0
// The sRGB curve, exactly invertible: codes of 8 or 16 bits to linear light and back.
#pragma once

#include <cstdint>
#include <vector>

namespace ctxbroker::sample_host {

// Linear light in 0..1 of an encoded value in 0..1, as IEC 61966-2-1 defines it, and its inverse.
double srgb_to_linear(double encoded) noexcept;
double linear_to_srgb(double linear) noexcept;

// Tables for one bit depth. Encoding rounds to the nearest code (it picks the code whose interval,
// half a code to either side, holds the value), so that encode(decode(c)) == c for every code.
class SrgbTables {
 public:
  explicit SrgbTables(int depth);  // 8 or 16

  float decode(std::uint16_t code) const noexcept { return linear_[code]; }
  // Below 0 and not a number give 0, above 1 the greatest code.
  std::uint16_t encode(float linear) const noexcept;

 private:
  std::vector<float> linear_;  // [code]
  // [code]: least float that encodes as this code or higher; infinity behind the last code.
  std::vector<float> lower_;
  std::vector<std::uint16_t> start_;  // [top bits of the float]: lowest code in that bucket
};

// The tables of a depth (8 or 16), made once. Any thread.
const SrgbTables& srgb_tables(int depth);

}  // namespace ctxbroker::sample_host
