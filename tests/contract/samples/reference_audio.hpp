// SPDX-License-Identifier: Apache-2.0
// What the audio samples compute, written down as plainly as possible, in double. Each function
// takes the whole signal; blocks are the plug-ins' own affair.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ctxbroker::reference {

using Channel = std::vector<double>;  // samples, full scale 1.0
using Audio = std::vector<Channel>;   // of equal length

Audio gain(const Audio& in, double decibels, bool mute);

struct Band {
  double frequency;  // Hz
  double decibels;
  double q;
};

// Low shelf, peak, high shelf, one after the other, after R. Bristow-Johnson's "Cookbook formulae
// for audio EQ biquad filter coefficients".
Audio equaliser(const Audio& in, const std::array<Band, 3>& bands, double sample_rate);

// out[i] = sum over k of taps[k] * in[i - k]
Audio fir(const Audio& in, const std::vector<double>& taps);

// Blackman-windowed sinc with a gain of 1 at 0 Hz; or what such a filter leaves (then an even count
// makes one tap less, followed by a 0).
std::vector<double> low_pass_taps(double cutoff_hz, double sample_rate, std::size_t count);
std::vector<double> high_pass_taps(double cutoff_hz, double sample_rate, std::size_t count);

// w[i] = in[i] + feedback * w[i - delay], out[i] = (1 - mix) * in[i] + mix * w[i - delay]
Audio delay(const Audio& in, std::size_t delay_frames, double feedback, double mix);

struct Room {
  double seconds;    // until 60 dB down
  double pre_delay;  // seconds
  std::uint32_t seed;
};

// Fading noise with an energy of 1; each channel has its own.
Channel room_response(const Room& room, double sample_rate, std::uint32_t channel);

// (1 - mix) * in + mix * (in convolved with the room's response)
Audio reverb(const Audio& in, const Room& room, double sample_rate, double mix);

}  // namespace ctxbroker::reference
