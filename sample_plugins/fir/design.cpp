// SPDX-License-Identifier: Apache-2.0
#include "design.hpp"

#include <algorithm>
#include <cmath>

namespace {

constexpr double pi = 3.14159265358979323846;

double sinc_low_pass(double cutoff, double t) {
  return t == 0 ? 2 * cutoff : std::sin(2 * pi * cutoff * t) / (pi * t);
}

// Position 0 is the centre, `half` just beyond the last tap, where the window is 0.
double blackman(double t, double half) {
  const double phase = pi * t / half;
  return 0.42 + 0.5 * std::cos(phase) + 0.08 * std::cos(2 * phase);
}

}  // namespace

Taps design(Response response, double cutoff, std::size_t count) {
  Taps taps;
  taps.count = std::clamp<std::size_t>(count, 1, max_taps);
  const bool high = response == Response::high_pass;
  const std::size_t used = high && taps.count % 2 == 0 ? taps.count - 1 : taps.count;
  const double centre = (static_cast<double>(used) - 1) / 2;
  std::array<double, max_taps> exact{};
  double sum = 0;
  for (std::size_t i = 0; i < used; ++i) {
    const double t = static_cast<double>(i) - centre;
    exact[i] = sinc_low_pass(std::min(cutoff, 0.5), t) * blackman(t, centre + 1);
    sum += exact[i];
  }
  for (std::size_t i = 0; i < used; ++i) {
    double value = exact[i] / sum;
    if (high) {
      value = (i == used / 2 ? 1.0 : 0.0) - value;
    }
    taps.values[i] = static_cast<float>(value);
  }
  return taps;
}
