// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

#include "bands.hpp"

using ctxbroker::sdk::AudioView;

// Transposed direct form II, in double: a shelf at 20 Hz would lose 40 dB of accuracy in float.
__device__ inline double run(const Bands& bands, double (&state)[2 * band_count], double sample) {
#pragma unroll
  for (int b = 0; b < band_count; ++b) {
    const Biquad& q = bands.band[b];
    const double y = q.b0 * sample + state[2 * b];
    state[2 * b] = q.b1 * sample - q.a1 * y + state[2 * b + 1];
    state[2 * b + 1] = q.b2 * sample - q.a2 * y;
    sample = y;
  }
  return sample;
}

// One thread per channel, because each sample needs the one before. Samples move in chunks, so that
// the memory's latency is paid once for eight of them. history[k * max_channels + c] is state k of
// channel c.
extern "C" __global__ void equaliser(AudioView in, AudioView out, double* history,
                                     unsigned max_channels, unsigned reset, Bands bands) {
  constexpr unsigned chunk = 8;
  const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= out.channels) {
    return;
  }
  double state[2 * band_count];
#pragma unroll
  for (int k = 0; k < 2 * band_count; ++k) {
    state[k] = reset != 0 ? 0.0 : history[static_cast<size_t>(k) * max_channels + c];
  }
  const float* source = in.channel(c);
  float* target = out.channel(c);
  unsigned i = 0;
  for (; out.frames - i >= chunk; i += chunk) {
    float samples[chunk];
#pragma unroll
    for (unsigned k = 0; k < chunk; ++k) {
      samples[k] = source[i + k];
    }
#pragma unroll
    for (unsigned k = 0; k < chunk; ++k) {
      samples[k] = static_cast<float>(run(bands, state, samples[k]));
    }
#pragma unroll
    for (unsigned k = 0; k < chunk; ++k) {
      target[i + k] = samples[k];
    }
  }
  for (; i < out.frames; ++i) {
    target[i] = static_cast<float>(run(bands, state, source[i]));
  }
#pragma unroll
  for (int k = 0; k < 2 * band_count; ++k) {
    history[static_cast<size_t>(k) * max_channels + c] = state[k];
  }
}
