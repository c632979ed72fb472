// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

#include "results.hpp"

using ctxbroker::sdk::AudioView;
using namespace sample::spectrum;

// The mean of the channels, into a ring of `capacity` frames.
extern "C" __global__ void mix(AudioView in, float* ring, unsigned capacity, unsigned head) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= in.frames) {
    return;
  }
  float sum = 0;
  for (unsigned c = 0; c < in.channels; ++c) {
    sum += in.channel(c)[i];
  }
  ring[(head + i) % capacity] = sum / in.channels;
}

// A Fourier transform of each window, in shared memory, and zeros for those that there are not.
// `table` holds the window and then the twiddle factors. The first window begins at `begin` in the
// ring.
extern "C" __global__ void analyse(const float* ring, unsigned capacity, unsigned begin,
                                   const float* table, Header header, Header* results) {
  __shared__ float2 values[window_frames];
  constexpr unsigned half = window_frames / 2, levels = 10;
  static_assert(1U << levels == window_frames);
  const unsigned t = threadIdx.x;
  float* const mine =
      reinterpret_cast<float*>(results + 1) + static_cast<size_t>(blockIdx.x) * bin_count;
  if (blockIdx.x == 0 && t == 0) {
    *results = header;
  }
  if (blockIdx.x >= header.windows) {
    for (unsigned k = t; k < bin_count; k += half) {
      mine[k] = 0;
    }
    return;
  }
  const unsigned start = begin + blockIdx.x * hop_frames;
  for (unsigned i = t; i < window_frames; i += half) {
    values[__brev(i) >> (32 - levels)] = {ring[(start + i) % capacity] * table[i], 0};
  }
  const float2* const turns = reinterpret_cast<const float2*>(table + window_frames);
  for (unsigned level = 0; level < levels; ++level) {
    __syncthreads();
    const unsigned reach = 1U << level;
    const unsigned place = t % reach;
    const unsigned low = (t - place) * 2 + place, high = low + reach;
    const float2 w = turns[place * (half >> level)];
    const float2 a = values[low], b = values[high];
    const float2 turned = {b.x * w.x - b.y * w.y, b.x * w.y + b.y * w.x};
    values[low] = {a.x + turned.x, a.y + turned.y};
    values[high] = {a.x - turned.x, a.y - turned.y};
  }
  __syncthreads();
  for (unsigned k = t; k < bin_count; k += half) {
    const float2 value = values[k];
    // The two ends have no mirror image.
    const float scale = k == 0 || k == half ? 0.5f : 1.0f;
    mine[k] = scale * sqrtf(value.x * value.x + value.y * value.y);
  }
}
