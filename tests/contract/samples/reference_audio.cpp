// SPDX-License-Identifier: Apache-2.0
#include "reference_audio.hpp"

#include <algorithm>
#include <cmath>

namespace ctxbroker::reference {
namespace {

constexpr double pi = 3.14159265358979323846;

template <class Function>
Audio each_channel(const Audio& in, Function function) {
  Audio out;
  for (const Channel& channel : in) {
    out.push_back(function(channel));
  }
  return out;
}

// Direct form I.
struct Biquad {
  double b0, b1, b2, a0, a1, a2;

  Channel operator()(const Channel& in) const {
    Channel out;
    double x1 = 0, x2 = 0, y1 = 0, y2 = 0;
    for (const double x : in) {
      const double y = (b0 * x + b1 * x1 + b2 * x2 - a1 * y1 - a2 * y2) / a0;
      x2 = x1, x1 = x, y2 = y1, y1 = y;
      out.push_back(y);
    }
    return out;
  }
};

// The cookbook's names: A, w0, alpha.
struct Terms {
  Terms(const Band& band, double sample_rate)
      : A(std::pow(10, band.decibels / 40)),
        w0(2 * pi * std::fmin(band.frequency, 0.499 * sample_rate) / sample_rate),
        alpha(std::sin(w0) / (2 * band.q)) {}
  double A, w0, alpha;  // NOLINT(readability-identifier-naming): the cookbook's names
};

Biquad peak(const Band& band, double rate) {
  const Terms t(band, rate);
  return {1 + t.alpha * t.A, -2 * std::cos(t.w0), 1 - t.alpha * t.A,
          1 + t.alpha / t.A, -2 * std::cos(t.w0), 1 - t.alpha / t.A};
}

Biquad low_shelf(const Band& band, double rate) {
  const Terms t(band, rate);
  const double a = t.A, cosine = std::cos(t.w0), root = 2 * std::sqrt(a) * t.alpha;
  return {a * ((a + 1) - (a - 1) * cosine + root), 2 * a * ((a - 1) - (a + 1) * cosine),
          a * ((a + 1) - (a - 1) * cosine - root), (a + 1) + (a - 1) * cosine + root,
          -2 * ((a - 1) + (a + 1) * cosine),       (a + 1) + (a - 1) * cosine - root};
}

Biquad high_shelf(const Band& band, double rate) {
  const Terms t(band, rate);
  const double a = t.A, cosine = std::cos(t.w0), root = 2 * std::sqrt(a) * t.alpha;
  return {a * ((a + 1) + (a - 1) * cosine + root), -2 * a * ((a - 1) + (a + 1) * cosine),
          a * ((a + 1) + (a - 1) * cosine - root), (a + 1) - (a - 1) * cosine + root,
          2 * ((a - 1) - (a + 1) * cosine),        (a + 1) - (a - 1) * cosine - root};
}

}  // namespace

Audio gain(const Audio& in, double decibels, bool mute) {
  const double factor = mute ? 0 : std::pow(10, decibels / 20);
  return each_channel(in, [&](Channel channel) {
    for (double& sample : channel) {
      sample *= factor;
    }
    return channel;
  });
}

Audio equaliser(const Audio& in, const std::array<Band, 3>& bands, double sample_rate) {
  const Biquad low = low_shelf(bands[0], sample_rate);
  const Biquad middle = peak(bands[1], sample_rate);
  const Biquad high = high_shelf(bands[2], sample_rate);
  return each_channel(in, [&](const Channel& channel) { return high(middle(low(channel))); });
}

Audio fir(const Audio& in, const std::vector<double>& taps) {
  return each_channel(in, [&](const Channel& channel) {
    Channel out(channel.size());
    for (std::size_t i = 0; i < channel.size(); ++i) {
      for (std::size_t k = 0; k < taps.size() && k <= i; ++k) {
        out[i] += taps[k] * channel[i - k];
      }
    }
    return out;
  });
}

std::vector<double> low_pass_taps(double cutoff_hz, double sample_rate, std::size_t count) {
  const double cutoff = std::fmin(cutoff_hz / sample_rate, 0.5);
  std::vector<double> taps;
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double n = static_cast<double>(i) - (static_cast<double>(count) - 1) / 2;
    const double sinc = n == 0 ? 2 * cutoff : std::sin(2 * pi * cutoff * n) / (pi * n);
    const double place = (static_cast<double>(i) + 1) / (static_cast<double>(count) + 1);
    const double window = 0.42 - 0.5 * std::cos(2 * pi * place) + 0.08 * std::cos(4 * pi * place);
    taps.push_back(sinc * window);
    sum += taps.back();
  }
  for (double& tap : taps) {
    tap /= sum;
  }
  return taps;
}

std::vector<double> high_pass_taps(double cutoff_hz, double sample_rate, std::size_t count) {
  const std::size_t odd = count % 2 == 0 ? count - 1 : count;
  std::vector<double> taps = low_pass_taps(cutoff_hz, sample_rate, odd);
  for (double& tap : taps) {
    tap = -tap;
  }
  taps[odd / 2] += 1;
  taps.resize(count);
  return taps;
}

Audio delay(const Audio& in, std::size_t delay_frames, double feedback, double mix) {
  return each_channel(in, [&](const Channel& channel) {
    Channel out, w;
    for (std::size_t i = 0; i < channel.size(); ++i) {
      const double delayed = i >= delay_frames ? w[i - delay_frames] : 0;
      w.push_back(channel[i] + feedback * delayed);
      out.push_back((1 - mix) * channel[i] + mix * delayed);
    }
    return out;
  });
}

Channel room_response(const Room& room, double sample_rate, std::uint32_t channel) {
  const auto silent = static_cast<std::size_t>(std::lround(room.pre_delay * sample_rate));
  const auto frames = static_cast<std::size_t>(std::lround(room.seconds * sample_rate));
  Channel response(silent);
  double energy = 0;
  for (std::uint32_t i = 0; i < std::max<std::size_t>(frames, 1); ++i) {
    // The hash is part of what the plug-in promises: the same seed is the same room for ever.
    std::uint32_t bits = (room.seed * 2654435769U) ^ (channel * 2246822507U) ^ i;
    for (int round = 0; round < 2; ++round) {
      bits = (bits ^ (bits >> 16)) * 0x7feb352dU;
      bits = (bits ^ (bits >> 15)) * 0x846ca68bU;
      bits ^= bits >> 16;
    }
    const double decibels = -60 * (i / sample_rate) / room.seconds;
    response.push_back((bits / 2147483648.0 - 1) * std::pow(10, decibels / 20));
    energy += response.back() * response.back();
  }
  for (double& tap : response) {
    tap /= std::sqrt(energy);
  }
  return response;
}

Audio reverb(const Audio& in, const Room& room, double sample_rate, double mix) {
  Audio out;
  for (std::uint32_t c = 0; c < in.size(); ++c) {
    const Channel wet = fir({in[c]}, room_response(room, sample_rate, c))[0];
    out.emplace_back();
    for (std::size_t i = 0; i < wet.size(); ++i) {
      out.back().push_back((1 - mix) * in[c][i] + mix * wet[i]);
    }
  }
  return out;
}

}  // namespace ctxbroker::reference
