// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

using ctxbroker::sdk::AudioView;

extern "C" __global__ void gain(AudioView in, AudioView out, float factor) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= out.frames) {
    return;
  }
  for (unsigned c = blockIdx.y * blockDim.y + threadIdx.y; c < out.channels;
       c += gridDim.y * blockDim.y) {
    out.channel(c)[i] = factor == 0.0f ? 0.0f : in.channel(c)[i] * factor;  // silence is silence
  }
}
