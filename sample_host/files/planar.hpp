// SPDX-License-Identifier: Apache-2.0
// Between interleaved samples (files) and one run of frames per channel (plug-ins).
#pragma once

#include <cstddef>

namespace ctxbroker::sample_host {

// `frames * channels` samples each; the two do not overlap.
void deinterleave(const float* interleaved, std::size_t frames, std::size_t channels,
                  float* planar) noexcept;
void interleave(const float* planar, std::size_t frames, std::size_t channels,
                float* interleaved) noexcept;

}  // namespace ctxbroker::sample_host
