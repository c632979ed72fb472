// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

using ctxbroker::sdk::AudioView;

extern "C" __global__ void halve(AudioView in, AudioView out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned c = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < out.frames && c < out.channels) {
    out.channel(c)[i] = in.channel(c)[i] * 0.5f;
  }
}
