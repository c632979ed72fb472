// SPDX-License-Identifier: Apache-2.0
// The work on the device; CUB and Thrust stay behind it, for they are long to compile.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <ctxbroker/sdk/views.hpp>

#include "runtime.hpp"

namespace ctxbroker::sample {

struct Strength {
  float amount;  // 0: nothing, 1: all
  float limit;   // largest factor for a pixel, and the smallest's reciprocal
};

// Everything enqueues but allocate, and throws Failure.
class Equaliser {
 public:
  // For up to `pixels` pixels and this number of grey levels.
  void allocate(std::uint64_t pixels, std::uint32_t levels);
  void reset() noexcept;
  void forget() noexcept;

  void run(const sdk::ImageView& in, const sdk::ImageView& out, const Strength& strength,
           cudaStream_t stream);

 private:
  std::uint32_t levels_ = 0;
  RuntimeBuffer<std::int32_t> keys_;        // each pixel's level; -1: it does not count
  RuntimeBuffer<std::uint32_t> histogram_;  // pixels of each level
  RuntimeBuffer<std::uint32_t> upto_;       // pixels of a level and those below it
  RuntimeBuffer<float> target_;             // the brightness that a level is to have
  RuntimeBuffer<unsigned char> scratch_;    // CUB's
};

}  // namespace ctxbroker::sample
