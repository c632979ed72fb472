// SPDX-License-Identifier: Apache-2.0
#include "partitions.hpp"

#include "runtime.hpp"

namespace ctxbroker::sample {
namespace {

using sdk::AudioView;

constexpr unsigned threads = 128;
constexpr unsigned most_rows = 65535;  // of a grid

// `columns` in x; rows in y, over which the kernels stride.
dim3 grid(unsigned columns, unsigned rows) {
  return {(columns + threads - 1) / threads, rows < most_rows ? rows : most_rows, 1};
}

__device__ unsigned column() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ cufftComplex multiplied(cufftComplex a, cufftComplex b, cufftComplex sum) {
  sum.x += a.x * b.x - a.y * b.y;
  sum.y += a.x * b.y + a.y * b.x;
  return sum;
}

__global__ void take_kernel(AudioView in, Piece piece, float* window, unsigned length) {
  const unsigned i = column();
  if (i >= piece.frames) return;
  for (unsigned c = blockIdx.y; c < in.channels; c += gridDim.y) {
    window[(2 * size_t{c} + 1) * length + piece.at + i] = in.channel(c)[piece.first + i];
  }
}

__global__ void sum_past_kernel(Partitions partitions, unsigned bins, const cufftComplex* impulse,
                                const cufftComplex* spectra, unsigned current, cufftComplex* past) {
  const unsigned bin = column();
  if (bin >= bins) return;
  const size_t step = size_t{partitions.channels} * bins;
  for (unsigned c = blockIdx.y; c < partitions.channels; c += gridDim.y) {
    const size_t at = size_t{c} * bins + bin;
    cufftComplex sum{0, 0};
    unsigned slot = current;
    for (unsigned k = 1; k < partitions.count; ++k) {
      slot = slot == 0 ? partitions.count - 1 : slot - 1;
      sum = multiplied(impulse[k * step + at], spectra[slot * step + at], sum);
    }
    past[at] = sum;
  }
}

__global__ void add_current_kernel(size_t values, const cufftComplex* impulse,
                                   const cufftComplex* current, const cufftComplex* past,
                                   cufftComplex* sum) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = column(); i < values; i += step) {
    sum[i] = multiplied(impulse[i], current[i], past[i]);
  }
}

__global__ void give_kernel(AudioView in, AudioView out, Piece piece, const float* sound,
                            unsigned length, float dry, float wet) {
  const unsigned i = column();
  if (i >= piece.frames) return;
  for (unsigned c = blockIdx.y; c < out.channels; c += gridDim.y) {
    const float room = sound[(2 * size_t{c} + 1) * length + piece.at + i];
    const float own = dry == 0.0f ? 0.0f : dry * in.channel(c)[piece.first + i];
    out.channel(c)[piece.first + i] = wet == 0.0f ? own : own + wet * room;
  }
}

__global__ void next_window_kernel(Partitions partitions, float* window) {
  const unsigned i = column();
  if (i >= partitions.length) return;
  for (unsigned c = blockIdx.y; c < partitions.channels; c += gridDim.y) {
    float* own = window + 2 * size_t{c} * partitions.length;
    own[i] = own[partitions.length + i];
    own[partitions.length + i] = 0;
  }
}

}  // namespace

void take(const Partitions& partitions, const AudioView& in, const Piece& piece, float* window,
          cudaStream_t stream) {
  take_kernel<<<grid(piece.frames, in.channels), threads, 0, stream>>>(in, piece, window,
                                                                       partitions.length);
  check(cudaGetLastError(), "launching take");
}

void sum_past(const Partitions& partitions, const cufftComplex* impulse,
              const cufftComplex* spectra, std::uint32_t current, cufftComplex* past,
              cudaStream_t stream) {
  sum_past_kernel<<<grid(partitions.bins(), partitions.channels), threads, 0, stream>>>(
      partitions, partitions.bins(), impulse, spectra, current, past);
  check(cudaGetLastError(), "launching sum_past");
}

void add_current(const Partitions& partitions, const cufftComplex* impulse,
                 const cufftComplex* current, const cufftComplex* past, cufftComplex* sum,
                 cudaStream_t stream) {
  const size_t values = size_t{partitions.channels} * partitions.bins();
  const size_t blocks = (values + threads - 1) / threads;
  add_current_kernel<<<static_cast<unsigned>(blocks < 4096 ? blocks : 4096), threads, 0, stream>>>(
      values, impulse, current, past, sum);
  check(cudaGetLastError(), "launching add_current");
}

void give(const Partitions& partitions, const AudioView& in, const AudioView& out,
          const Piece& piece, const float* sound, float dry, float wet, cudaStream_t stream) {
  give_kernel<<<grid(piece.frames, out.channels), threads, 0, stream>>>(
      in, out, piece, sound, partitions.length, dry, wet);
  check(cudaGetLastError(), "launching give");
}

void next_window(const Partitions& partitions, float* window, cudaStream_t stream) {
  next_window_kernel<<<grid(partitions.length, partitions.channels), threads, 0, stream>>>(
      partitions, window);
  check(cudaGetLastError(), "launching next_window");
}

}  // namespace ctxbroker::sample
