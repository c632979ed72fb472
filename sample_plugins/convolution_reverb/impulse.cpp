// SPDX-License-Identifier: Apache-2.0
#include "impulse.hpp"

#include <algorithm>
#include <cmath>

namespace ctxbroker::sample {
namespace {

// From -1 to 1; a good integer hash makes good noise.
double noise(std::uint32_t seed, std::uint32_t channel, std::uint32_t index) {
  std::uint32_t bits = seed * 0x9e3779b9U ^ channel * 0x85ebca6bU ^ index;
  for (int round = 0; round < 2; ++round) {
    bits ^= bits >> 16;
    bits *= 0x7feb352dU;
    bits ^= bits >> 15;
    bits *= 0x846ca68bU;
    bits ^= bits >> 16;
  }
  return bits / 2147483648.0 - 1;
}

std::size_t frames(double seconds, double sample_rate) {
  return static_cast<std::size_t>(std::lround(seconds * sample_rate));
}

}  // namespace

std::size_t impulse_length(const Room& room, double sample_rate) {
  return frames(room.pre_delay, sample_rate) +
         std::max<std::size_t>(frames(room.seconds, sample_rate), 1);
}

std::vector<float> impulse(const Room& room, double sample_rate, std::uint32_t channel) {
  const std::size_t begin = frames(room.pre_delay, sample_rate);
  std::vector<double> taps(impulse_length(room, sample_rate));
  double energy = 0;
  for (std::size_t i = begin; i < taps.size(); ++i) {
    const auto index = static_cast<std::uint32_t>(i - begin);
    const double fade = std::pow(10, -3 * (index / sample_rate) / room.seconds);
    taps[i] = noise(room.seed, channel, index) * fade;
    energy += taps[i] * taps[i];
  }
  const double scale = energy > 0 ? 1 / std::sqrt(energy) : 0;
  std::vector<float> rounded(taps.size());
  std::transform(taps.begin(), taps.end(), rounded.begin(),
                 [&](double tap) { return static_cast<float>(tap * scale); });
  return rounded;
}

}  // namespace ctxbroker::sample
