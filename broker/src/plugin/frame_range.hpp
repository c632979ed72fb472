// SPDX-License-Identifier: Apache-2.0
// Which frames of an input an image plug-in needs.
#pragma once

#include <vector>

namespace ctxbroker::detail {

// As distances from the job's frame: first <= 0 <= last.
struct FrameRange {
  int first = 0, last = 0;
  bool operator==(const FrameRange&) const = default;
};
using FrameRanges = std::vector<FrameRange>;  // of each of a plug-in's inputs

}  // namespace ctxbroker::detail
