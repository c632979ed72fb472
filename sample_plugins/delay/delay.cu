// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

using ctxbroker::sdk::AudioView;

// w[i] = in[i] + feedback * w[i - delay], out[i] = dry * in[i] + wet * w[i - delay].
//
// Samples that are a multiple of `delay` apart depend on each other, all others do not: one thread
// per remainder walks through the block. `ring` holds `capacity` values of w per channel, and
// capacity is at least delay + frames, so that no thread overwrites what another still reads.
// `head` is the place of w[0], `known` how many values before it were ever written.
extern "C" __global__ void delay(AudioView in, AudioView out, float* ring, unsigned capacity,
                                 unsigned head, unsigned known, unsigned delay, float feedback,
                                 float dry, float wet) {
  const unsigned first = blockIdx.x * blockDim.x + threadIdx.x;
  if (first >= delay || first >= out.frames) {
    return;
  }
  for (unsigned c = blockIdx.y * blockDim.y + threadIdx.y; c < out.channels;
       c += gridDim.y * blockDim.y) {
    const float* source = in.channel(c);
    float* target = out.channel(c);
    float* line = ring + static_cast<size_t>(c) * capacity;
    float delayed =
        first + known >= delay ? line[(head + first + (capacity - delay)) % capacity] : 0.0f;
    for (unsigned i = first; i < out.frames; i += delay) {
      const float sample = source[i];
      const float stored = sample + feedback * delayed;
      line[(head + i) % capacity] = stored;
      const float own = dry == 0.0f ? 0.0f : dry * sample;
      target[i] = wet == 0.0f ? own : own + wet * delayed;
      delayed = stored;
    }
  }
}
