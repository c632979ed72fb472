// SPDX-License-Identifier: Apache-2.0
// What the host's code and the kernel agree on.
#pragma once

#include <ctxbroker/sdk/views.hpp>

namespace sample {

inline constexpr int most_frames = 8;  // before the job's own one, and after it

struct WeightedFrame {
  ctxbroker::sdk::PixelView image;
  float weight;  // all weights together are 1
};

struct Frames {
  WeightedFrame frame[2 * most_frames + 1];
  unsigned count;
};

}  // namespace sample
