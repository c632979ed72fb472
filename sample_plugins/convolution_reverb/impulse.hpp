// SPDX-License-Identifier: Apache-2.0
// A room as noise that fades.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ctxbroker::sample {

struct Room {
  double seconds;    // until the sound is 60 dB down; there it is cut off
  double pre_delay;  // seconds before it begins
  std::uint32_t seed;
};

// Taps of the room's impulse response, the pre-delay included; at least 1.
std::size_t impulse_length(const Room& room, double sample_rate);

// Those of one channel: each has noise of its own and an energy of 1.
std::vector<float> impulse(const Room& room, double sample_rate, std::uint32_t channel);

}  // namespace ctxbroker::sample
