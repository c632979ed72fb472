// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <ctxbroker/sdk/segment.hpp>
#include <ctxbroker/sdk/views.hpp>

using ctxbroker::sdk::AudioView;
using ctxbroker::sdk::Segment;

// How far the phase goes in one frame. A turn is 2^64, so that phases are added without rounding:
// their sum is the same wherever a block ends.
__device__ inline std::uint64_t step(const Segment& frequency, unsigned frame, double rate) {
  const double turns = fmin(frequency.at(frame) / rate, 0.5);
  return __double2ull_rn(turns * 18446744073709551616.0);
}

// One block of 256 threads for one segment of the frequency. Each thread has frames that follow
// each other, and begins where the threads before it leave the phase.
extern "C" __global__ void tone(AudioView out, std::uint64_t* phase, Segment frequency,
                                Segment level, double rate, unsigned reset) {
  __shared__ std::uint64_t sums[256];
  const unsigned t = threadIdx.x;
  const unsigned each = (frequency.frames() + 255) / 256;
  const unsigned first = frequency.first + min(t * each, frequency.frames());
  const unsigned end = first + min(each, frequency.end - first);
  std::uint64_t sum = 0;
  for (unsigned i = first; i < end; ++i) {
    sum += step(frequency, i, rate);
  }
  sums[t] = sum;
  const std::uint64_t start = reset != 0 ? 0 : *phase;
  __syncthreads();
  for (unsigned reach = 1; reach < 256; reach *= 2) {
    const std::uint64_t before = t >= reach ? sums[t - reach] : 0;
    __syncthreads();
    sums[t] += before;
    __syncthreads();
  }
  std::uint64_t now = start + sums[t] - sum;
  for (unsigned i = first; i < end; ++i) {
    const double turns = static_cast<double>(now) * (1 / 18446744073709551616.0);
    const auto value = static_cast<float>(level.at(i) * sinpi(2 * turns));
    for (unsigned c = 0; c < out.channels; ++c) {
      out.channel(c)[i] = value;
    }
    now += step(frequency, i, rate);
  }
  if (t == 255) {
    *phase = start + sums[t];
  }
}
