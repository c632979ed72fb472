// SPDX-License-Identifier: Apache-2.0
// What tone, compressor and spectrum compute, written down as plainly as possible, in double, for
// whole signals.
#pragma once

#include <functional>

#include "reference_audio.hpp"

namespace ctxbroker::reference {

// A sine whose frequency in Hz and level depend on the frame.
Channel tone(std::size_t frames, double sample_rate,
             const std::function<double(std::size_t)>& hertz,
             const std::function<double(std::size_t)>& level);

struct Compressor {
  double threshold, ratio, attack_ms, release_ms, make_up;
  std::size_t look_ahead;  // frames
};
// `key` is what it listens to: the sound itself, or something else of any number of channels.
Audio compressed(const Audio& in, const Audio& key, const Compressor& how, double sample_rate);

// The amplitudes of one window of the mean of all channels, from frame `first` on, under Hann's
// window. For each bin up to half the window.
Channel spectrum(const Audio& in, std::size_t first, std::size_t window);

}  // namespace ctxbroker::reference
