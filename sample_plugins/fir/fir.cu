// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

using ctxbroker::sdk::AudioView;

// Sample i of a channel; negative ones come from the history, whose last sample is number -1.
__device__ inline float sample_at(const float* source, const float* history, int history_length,
                                  int i) {
  return i >= 0 ? source[i] : history[history_length + i];
}

// out[i] = sum over k of taps[k] * in[i - k]. A block makes blockDim.x samples; taps and the
// samples they reach are in shared memory (2 * tap_count - 1 + blockDim.x floats). `history` and
// `next` hold tap_count - 1 samples per channel, before and after this block; with reset the former
// counts as silence.
extern "C" __global__ void fir(AudioView in, AudioView out, const float* taps, int tap_count,
                               const float* history, float* next, unsigned reset) {
  extern __shared__ float shared[];
  float* tap = shared;
  float* tile = shared + tap_count;
  const int past = tap_count - 1;
  const int frames = static_cast<int>(out.frames);
  const int threads = static_cast<int>(blockDim.x);
  const int local = static_cast<int>(threadIdx.x);
  const int start = static_cast<int>(blockIdx.x) * threads;
  const int i = start + local;

  for (int k = local; k < tap_count; k += threads) {
    tap[k] = taps[k];
  }
  for (unsigned c = blockIdx.y; c < out.channels; c += gridDim.y) {
    const float* source = in.channel(c);
    const float* before = history + static_cast<size_t>(c) * past;
    for (int k = local; k < threads + past; k += threads) {
      const int at = start - past + k;
      const bool known = at < frames && (at >= 0 || reset == 0);
      tile[k] = known ? sample_at(source, before, past, at) : 0.0f;
    }
    __syncthreads();
    if (i < frames) {
      const float* newest = tile + past + local;
      float sum = 0.0f;
      for (int k = 0; k < tap_count; ++k) {
        sum += tap[k] * newest[-k];
      }
      out.channel(c)[i] = sum;
    }
    for (int k = i; k < past; k += static_cast<int>(gridDim.x) * threads) {
      const int at = frames - past + k;
      next[static_cast<size_t>(c) * past + k] =
          at >= 0 || reset == 0 ? sample_at(source, before, past, at) : 0.0f;
    }
    __syncthreads();
  }
}
