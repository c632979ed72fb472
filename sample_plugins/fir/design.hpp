// SPDX-License-Identifier: Apache-2.0
// Windowed-sinc filters.
#pragma once

#include <array>
#include <cstddef>

constexpr std::size_t max_taps = 1024;

struct Taps {
  std::array<float, max_taps> values{};
  std::size_t count = 1;
};

enum class Response { low_pass, high_pass };

// Linear phase, Blackman window. `cutoff` is in cycles per sample (0.5 is half the sample rate;
// more counts as 0.5). A low-pass filter has a gain of 1 at 0 Hz, a high-pass filter is what it
// leaves; that needs an odd number of taps, so the last of an even number is 0. Allocates nothing.
Taps design(Response response, double cutoff, std::size_t count);
