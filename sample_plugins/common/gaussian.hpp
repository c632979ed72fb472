// SPDX-License-Identifier: Apache-2.0
// The weights of a gaussian, shared by the plug-ins that blur.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

namespace sample {

inline constexpr int gaussian_max_radius = 64;  // pixels

// One half of a symmetric kernel: weights[0] is the centre, weights[reach] the last one; the whole
// kernel sums to 1. A radius of r pixels means a standard deviation of r / 3, cut off at r.
struct Gaussian {
  std::array<float, gaussian_max_radius + 1> weights{};
  int reach = 0;
};

inline int gaussian_reach(double radius) {
  return static_cast<int>(std::ceil(radius));
}

inline Gaussian make_gaussian(double radius) {
  Gaussian gaussian;
  gaussian.reach = gaussian_reach(radius);
  const double sigma = radius / 3;
  std::array<double, gaussian_max_radius + 1> exact{};
  exact[0] = 1;
  double sum = 1;
  for (int i = 1; i <= gaussian.reach; ++i) {
    const double value = std::exp(-0.5 * (i / sigma) * (i / sigma));
    exact[static_cast<std::size_t>(i)] = value;
    sum += 2 * value;
  }
  for (std::size_t i = 0; i <= static_cast<std::size_t>(gaussian.reach); ++i) {
    gaussian.weights[i] = static_cast<float>(exact[i] / sum);
  }
  return gaussian;
}

}  // namespace sample
