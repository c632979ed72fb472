// SPDX-License-Identifier: Apache-2.0
#include "strip.hpp"

using ctxbroker::sdk::AudioView;

// Frames first to before end of the block. A strip with fewer channels than the output gives its
// last one to the others, so mono sound is on all of them.
extern "C" __global__ void mix(sample::Strips strips, AudioView out, unsigned first, unsigned end) {
  const unsigned i = first + blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= end) {
    return;
  }
  for (unsigned c = blockIdx.y * blockDim.y + threadIdx.y; c < out.channels;
       c += gridDim.y * blockDim.y) {
    float sum = 0.0f;
    for (unsigned s = 0; s < strips.count; ++s) {
      const sample::Strip& strip = strips.strip[s];
      const unsigned channel = min(c, strip.in.channels - 1);
      const float level = static_cast<float>(strip.level.at(i));
      if (level != 0.0f) sum += strip.in.channel(channel)[i] * level;
    }
    out.channel(c)[i] = sum;
  }
}
