// SPDX-License-Identifier: Apache-2.0
// What the plug-in `spectrum` gives the host for each block: this header, then most_windows times
// bin_count floats, window after window. What no window fills is 0.
//
// A window has window_frames frames, and begins hop_frames after the one before. They are counted
// from the last discontinuity, so where the blocks end does not matter: a block reports the windows
// that ended in it, and of more than most_windows the last ones.
#pragma once

#include <cstdint>

namespace sample::spectrum {

inline constexpr std::uint32_t window_frames = 1024, hop_frames = 512;
inline constexpr std::uint32_t bin_count = window_frames / 2 + 1;
inline constexpr std::uint32_t most_windows = 16;

struct Header {
  std::uint32_t size;           // of this struct, in bytes
  std::uint32_t windows;        // that follow: 0 to most_windows
  std::uint32_t window_frames;  // as above, and so on
  std::uint32_t hop_frames;
  std::uint32_t bin_count;
  std::uint32_t reserved;      // 0
  std::uint64_t first_window;  // number of the first one: it begins at first_window * hop_frames
  double sample_rate;          // Hz. Bin k is at k * sample_rate / window_frames
};
static_assert(sizeof(Header) == 40);

// A bin is an amplitude: a sine of full scale in all channels gives 1 in its bin.
inline constexpr std::uint32_t result_bytes =
    std::uint32_t{sizeof(Header)} + std::uint32_t{sizeof(float)} * most_windows * bin_count;

}  // namespace sample::spectrum
