// SPDX-License-Identifier: Apache-2.0
// The kernels around the transforms. A signal is cut into partitions of `length` frames; a window
// is the partition before and the one that is being filled, 2 * length frames for each channel.
#pragma once

#include <cuda_runtime_api.h>
#include <cufft.h>

#include <cstdint>
#include <ctxbroker/sdk/views.hpp>

namespace ctxbroker::sample {

struct Partitions {
  std::uint32_t length;    // frames
  std::uint32_t count;     // of the impulse response
  std::uint32_t channels;  // that there is room for

  std::uint32_t bins() const { return length + 1; }  // of a window's spectrum
};

// A piece of the job that lies in one partition.
struct Piece {
  std::uint32_t first;  // frame of the block
  std::uint32_t at;     // frame of the partition
  std::uint32_t frames;
};

// All of them enqueue and throw Failure. Spectra are [count][channels][bins], windows and what
// comes back [channels][2 * length].

// Puts the piece into the window.
void take(const Partitions& partitions, const sdk::AudioView& in, const Piece& piece, float* window,
          cudaStream_t stream);

// What the partitions before the current one sound like still; spectra[current] is the current
// window's place in the ring.
void sum_past(const Partitions& partitions, const cufftComplex* impulse,
              const cufftComplex* spectra, std::uint32_t current, cufftComplex* past,
              cudaStream_t stream);

// The current window's own part on top of that.
void add_current(const Partitions& partitions, const cufftComplex* impulse,
                 const cufftComplex* current, const cufftComplex* past, cufftComplex* sum,
                 cudaStream_t stream);

// The piece of the sound, mixed with the input.
void give(const Partitions& partitions, const sdk::AudioView& in, const sdk::AudioView& out,
          const Piece& piece, const float* sound, float dry, float wet, cudaStream_t stream);

// The window's second half becomes its first, and the second half silence.
void next_window(const Partitions& partitions, float* window, cudaStream_t stream);

}  // namespace ctxbroker::sample
