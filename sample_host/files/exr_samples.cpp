// SPDX-License-Identifier: Apache-2.0
#include "files/exr_samples.hpp"

#include <algorithm>
#include <cmath>

#include "files/image.hpp"

namespace ctxbroker::sample_host {

void make_straight(float* pixels, std::uint32_t width) {
  for (float* pixel = pixels; pixel < pixels + std::size_t{width} * 4; pixel += 4) {
    const float alpha = pixel[3];
    if (!(alpha > 0.0F) || alpha == 1.0F) continue;
    for (int c = 0; c < 3; ++c) pixel[c] /= alpha;
  }
}

bool is_straight_anyway(const std::vector<std::uint16_t>& halves) {
  constexpr std::uint16_t one = 0x3c00, infinity = 0x7c00;
  for (std::size_t i = 3; i < halves.size(); i += 4) {
    const std::uint16_t alpha = halves[i];  // positive numbers are ordered as their bits
    if (alpha != 0 && alpha != one && alpha <= infinity) return false;
  }
  return true;
}

void make_premultiplied(const float* pixels, int channels, bool keep_transparent,
                        std::uint32_t width, float* samples) {
  const int colours = channels >= 3 ? 3 : 1;
  const bool has_alpha = channels > colours;
  for (std::uint32_t x = 0; x < width; ++x, pixels += 4, samples += channels) {
    if (colours == 3) {
      std::copy_n(pixels, 3, samples);
    } else {
      samples[0] = luminance(pixels);
    }
    if (!has_alpha) continue;
    const float alpha = pixels[3];
    samples[colours] = alpha;
    const bool as_it_is = alpha == 1.0F || !(alpha >= 0.0F) || (alpha == 0.0F && keep_transparent);
    if (as_it_is) continue;
    for (int c = 0; c < colours; ++c) samples[c] *= alpha;
  }
}

half to_half(float value) {
  constexpr float largest = 65504;
  return half(std::isfinite(value) ? std::clamp(value, -largest, largest) : value);
}

}  // namespace ctxbroker::sample_host
