// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

using ctxbroker::sdk::AudioView;

// By how many dB the sound should become quieter, for each frame. The loudest channel counts.
extern "C" __global__ void measure(AudioView key, double* reduction, double threshold,
                                   double slope) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= key.frames) {
    return;
  }
  float peak = 0;
  for (unsigned c = 0; c < key.channels; ++c) {
    peak = fmaxf(peak, fabsf(key.channel(c)[i]));
  }
  const double excess = peak > 0 ? 20 * log10(static_cast<double>(peak)) - threshold : 0;
  reduction[i] = excess > 0 && slope > 0 ? excess * slope : 0;
}

// The operation is spelled out, so that it is the same in both loops below.
__device__ inline double smoothed(double now, double wanted, double attack, double release) {
  return fma(now - wanted, wanted > now ? attack : release, wanted);
}

// The same, smoothed. One thread, because each frame needs the one before. Values move in chunks,
// so that the memory's latency is paid once for eight of them.
extern "C" __global__ void follow(double* reduction, unsigned frames, double* envelope,
                                  unsigned reset, double attack, double release) {
  constexpr unsigned chunk = 8;
  double now = reset != 0 ? 0 : *envelope;
  unsigned i = 0;
  for (; frames - i >= chunk; i += chunk) {
    double values[chunk];
#pragma unroll
    for (unsigned k = 0; k < chunk; ++k) {
      values[k] = reduction[i + k];
    }
#pragma unroll
    for (unsigned k = 0; k < chunk; ++k) {
      values[k] = now = smoothed(now, values[k], attack, release);
    }
#pragma unroll
    for (unsigned k = 0; k < chunk; ++k) {
      reduction[i + k] = values[k];
    }
  }
  for (; i < frames; ++i) {
    reduction[i] = now = smoothed(now, reduction[i], attack, release);
  }
  *envelope = now;
}

// The sound of `late` frames ago, made quieter. `ring` holds `capacity` frames of each channel, at
// least late + frames, so that no thread overwrites what another still reads. `head` is the place
// of in[0], `known` how many frames before it were ever written.
extern "C" __global__ void apply(AudioView in, AudioView out, const double* reduction,
                                 double make_up, float* ring, unsigned capacity, unsigned head,
                                 unsigned known, unsigned late) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= out.frames) {
    return;
  }
  const double gain = exp10((make_up - reduction[i]) / 20);
  for (unsigned c = blockIdx.y * blockDim.y + threadIdx.y; c < out.channels;
       c += gridDim.y * blockDim.y) {
    float* line = ring + static_cast<size_t>(c) * capacity;
    float sample = in.channel(c)[i];
    line[(head + i) % capacity] = sample;
    if (i >= late) {
      sample = in.channel(c)[i - late];
    } else {
      sample = i + known >= late ? line[(head + i + (capacity - late)) % capacity] : 0.0f;
    }
    out.channel(c)[i] = static_cast<float>(sample * gain);
  }
}
