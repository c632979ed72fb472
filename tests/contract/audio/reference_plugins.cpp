// SPDX-License-Identifier: Apache-2.0
#include "reference_plugins.hpp"

#include <algorithm>
#include <cmath>
#include <complex>

namespace ctxbroker::reference {
namespace {

constexpr double pi = 3.14159265358979323846;

}  // namespace

Channel tone(std::size_t frames, double sample_rate,
             const std::function<double(std::size_t)>& hertz,
             const std::function<double(std::size_t)>& level) {
  Channel out;
  double turns = 0;
  for (std::size_t i = 0; i < frames; ++i) {
    out.push_back(level(i) * std::sin(2 * pi * turns));
    turns += std::min(hertz(i), sample_rate / 2) / sample_rate;
    turns -= std::floor(turns);
  }
  return out;
}

Audio compressed(const Audio& in, const Audio& key, const Compressor& how, double sample_rate) {
  const auto pull = [&](double milliseconds) {
    return milliseconds == 0 ? 1 : 1 - std::exp(-1 / (milliseconds / 1000 * sample_rate));
  };
  Audio out(in.size(), Channel(in[0].size()));
  double reduction = 0;  // dB
  for (std::size_t i = 0; i < in[0].size(); ++i) {
    double loudest = 0;
    for (const Channel& channel : key) loudest = std::max(loudest, std::abs(channel[i]));
    const double decibels = 20 * std::log10(std::max(loudest, 1e-30));
    const double kept = decibels > how.threshold
                            ? how.threshold + (decibels - how.threshold) / how.ratio
                            : decibels;
    const double wanted = decibels - kept;
    reduction += (wanted - reduction) * pull(wanted > reduction ? how.attack_ms : how.release_ms);
    const double gain = std::pow(10, (how.make_up - reduction) / 20);
    for (std::size_t c = 0; c < in.size(); ++c) {
      out[c][i] = i < how.look_ahead ? 0 : gain * in[c][i - how.look_ahead];
    }
  }
  return out;
}

Channel spectrum(const Audio& in, std::size_t first, std::size_t window) {
  Channel bins;
  for (std::size_t k = 0; k <= window / 2; ++k) {
    std::complex<double> sum = 0;
    double weights = 0;
    for (std::size_t i = 0; i < window; ++i) {
      double mean = 0;
      for (const Channel& channel : in) mean += channel[first + i];
      mean /= static_cast<double>(in.size());
      const double angle = 2 * pi * static_cast<double>(i) / static_cast<double>(window);
      const double weight = 0.5 - 0.5 * std::cos(angle);
      weights += weight;
      // The angle of k * i, reduced first so that the cosine stays accurate.
      const double turned =
          -2 * pi * static_cast<double>(k * i % window) / static_cast<double>(window);
      sum += mean * weight * std::complex<double>(std::cos(turned), std::sin(turned));
    }
    const bool is_edge = k == 0 || k == window / 2;
    bins.push_back(std::abs(sum) * (is_edge ? 1 : 2) / weights);
  }
  return bins;
}

}  // namespace ctxbroker::reference
