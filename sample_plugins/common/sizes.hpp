// SPDX-License-Identifier: Apache-2.0
// What the samples' arithmetic can take. All of them ask this in activate.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <ctxbroker/plugin.hpp>
#include <string>

namespace sample {

// Kernels add a step to an index before they compare it with an extent, some of them in int.
inline constexpr std::uint32_t largest_extent = 1U << 30;

inline constexpr double least_rate = 1, largest_rate = 1e7;  // Hz

namespace detail {

inline bool fits(std::uint32_t extent) {
  return extent >= 1 && extent <= largest_extent;
}

}  // namespace detail

// Both throw Failure.
inline void check_image(const ctxbroker::sdk::Activation& activation) {
  if (detail::fits(activation.max_width()) && detail::fits(activation.max_height())) {
    return;
  }
  throw ctxbroker::sdk::Failure(CTXB_ERROR_UNSUPPORTED,
                                "images of " + std::to_string(activation.max_width()) + " x " +
                                    std::to_string(activation.max_height()) +
                                    " pixels are not supported; both have to be from 1 to " +
                                    std::to_string(largest_extent));
}

inline void check_audio(const ctxbroker::sdk::Activation& activation) {
  if (detail::fits(activation.max_frames()) && detail::fits(activation.max_channels())) {
    return;
  }
  throw ctxbroker::sdk::Failure(CTXB_ERROR_UNSUPPORTED,
                                "blocks of " + std::to_string(activation.max_frames()) +
                                    " frames and " + std::to_string(activation.max_channels()) +
                                    " channels are not supported; both have to be from 1 to " +
                                    std::to_string(largest_extent));
}

// For what depends on the sample rate: returns it. A comparison with NaN is false.
inline double checked_rate(double rate) {
  if (rate >= least_rate && rate <= largest_rate) {
    return rate;
  }
  std::array<char, 32> text{};  // independent of the locale, which std::to_string is not
  const auto end = std::to_chars(text.data(), text.data() + text.size(), rate);
  throw ctxbroker::sdk::Failure(CTXB_ERROR_UNSUPPORTED,
                                "a sample rate of " + std::string(text.data(), end.ptr) +
                                    " Hz is not supported; it has to be from 1 to 10,000,000 Hz");
}

}  // namespace sample
