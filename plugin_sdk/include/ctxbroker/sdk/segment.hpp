// SPDX-License-Identifier: Apache-2.0
/// @file
/// A stretch of a block on which a parameter stays, or moves in a straight line. The header
/// compiles with the host's compiler and with nvcc.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define CTXB_SDK_EVERYWHERE __host__ __device__
#else
#define CTXB_SDK_EVERYWHERE
#endif

namespace ctxbroker::sdk {

/// One stretch of a block. Job::segments gives them, and a kernel takes one by value.
///
/// A ramp keeps its numbers from block to block, so its values do not depend on where the blocks
/// end.
struct Segment {
  std::uint32_t first;      ///< Its first frame in the block.
  std::uint32_t end;        ///< The frame after its last one.
  double from;              ///< The value at frame ramp_begin.
  double to;                ///< The value at frame ramp_end. Equal to `from`: the value stays.
  std::int64_t ramp_begin;  ///< Frame of the block, at most `first`; may be negative.
  std::int64_t ramp_end;    ///< Frame of the block, at least `end`; may lie after the block.

  /// Returns how many frames it has, at least 1.
  [[nodiscard]] CTXB_SDK_EVERYWHERE constexpr std::uint32_t frames() const { return end - first; }

  /// Returns the value at a frame of the block, from `first` to before `end`: the same bits on the
  /// device and on the host.
  [[nodiscard]] CTXB_SDK_EVERYWHERE double at(std::uint32_t frame) const {
    if (from == to) return to;
    const auto passed = static_cast<double>(static_cast<std::int64_t>(frame) - ramp_begin);
    const double part = passed / static_cast<double>(ramp_end - ramp_begin);
#if defined(__CUDA_ARCH__)
    return __dadd_rn(from, __dmul_rn(to - from, part));  // nvcc would make one operation of two
#else
    return from + (to - from) * part;
#endif
  }

  /// Returns the part of it that lies within frames `begin` to before `stop`, which has to overlap
  /// it.
  [[nodiscard]] CTXB_SDK_EVERYWHERE constexpr Segment within(std::uint32_t begin,
                                                             std::uint32_t stop) const {
    Segment part = *this;
    part.first = begin > first ? begin : first;
    part.end = stop < end ? stop : end;
    return part;
  }
};

}  // namespace ctxbroker::sdk

#undef CTXB_SDK_EVERYWHERE
