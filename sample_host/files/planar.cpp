// SPDX-License-Identifier: Apache-2.0
#include "files/planar.hpp"

namespace ctxbroker::sample_host {

void deinterleave(const float* interleaved, std::size_t frames, std::size_t channels,
                  float* planar) noexcept {
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < frames; ++i) planar[c * frames + i] = interleaved[i * channels + c];
  }
}

void interleave(const float* planar, std::size_t frames, std::size_t channels,
                float* interleaved) noexcept {
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < frames; ++i) interleaved[i * channels + c] = planar[c * frames + i];
  }
}

}  // namespace ctxbroker::sample_host
