// SPDX-License-Identifier: Apache-2.0
// What the mixer's kernel gets, on both sides.
#pragma once

#include <cstdint>
#include <ctxbroker/sdk/segment.hpp>
#include <ctxbroker/sdk/views.hpp>

namespace sample {

constexpr std::uint32_t most_strips = 8;

struct Strip {
  ctxbroker::sdk::AudioView in;
  ctxbroker::sdk::Segment level;
};

// By value: those that are connected come first.
struct Strips {
  Strip strip[most_strips];
  std::uint32_t count;
};

}  // namespace sample
