// SPDX-License-Identifier: Apache-2.0
// Rectangles of pixels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ctxbroker/graph.hpp"
#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

using Rectangle = ctxb_rectangle;

inline bool is_empty(const Rectangle& one) noexcept {
  return one.width == 0;
}

inline bool equal(const Rectangle& a, const Rectangle& b) noexcept {
  return a.x == b.x && a.y == b.y && a.width == b.width && a.height == b.height;
}

// At least one pixel, and no coordinate beyond 2^30, so that sums of two fit into 32 bits.
inline bool is_valid(const Rectangle& one) noexcept {
  constexpr std::int64_t limit = std::int64_t{1} << 30;
  const auto side = [&](std::int64_t first, std::int64_t length) {
    return length >= 1 && first >= -limit && first + length <= limit;
  };
  return side(one.x, one.width) && side(one.y, one.height);
}

// The rest is for sound ones.
inline bool contains(const Rectangle& outer, const Rectangle& inner) noexcept {
  const auto side = [](std::int64_t outer_first, std::int64_t outer_length, std::int64_t first,
                       std::int64_t length) {
    return first >= outer_first && first + length <= outer_first + outer_length;
  };
  return side(outer.x, outer.width, inner.x, inner.width) &&
         side(outer.y, outer.height, inner.y, inner.height);
}

// The smallest one around both. One of them may be empty.
inline Rectangle around(const Rectangle& a, const Rectangle& b) noexcept {
  if (is_empty(a)) return b;
  if (is_empty(b)) return a;
  const auto end = [](std::int64_t first, std::int64_t length) { return first + length; };
  const std::int32_t x = std::min(a.x, b.x), y = std::min(a.y, b.y);
  return {x, y, static_cast<std::uint32_t>(std::max(end(a.x, a.width), end(b.x, b.width)) - x),
          static_cast<std::uint32_t>(std::max(end(a.y, a.height), end(b.y, b.height)) - y)};
}

// Returns the pixels that both have; empty if there are none. Either of them may be empty.
inline Rectangle common(const Rectangle& a, const Rectangle& b) noexcept {
  const auto end = [](std::int64_t first, std::int64_t length) { return first + length; };
  const std::int32_t x = std::max(a.x, b.x), y = std::max(a.y, b.y);
  const std::int64_t width = std::min(end(a.x, a.width), end(b.x, b.width)) - x;
  const std::int64_t height = std::min(end(a.y, a.height), end(b.y, b.height)) - y;
  if (width <= 0 || height <= 0) return {};
  return {x, y, static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)};
}

// "12 x 8 pixels at (-2, 3)"
inline std::string to_text(const Rectangle& one) {
  return std::to_string(one.width) + " x " + std::to_string(one.height) + " pixels at (" +
         std::to_string(one.x) + ", " + std::to_string(one.y) + ")";
}

inline Rectangle rectangle(const ImageRegion& region) noexcept {
  return {region.x, region.y, region.width, region.height};
}
inline ImageRegion image_region(const Rectangle& one) noexcept {
  return {one.x, one.y, one.width, one.height};
}

// Returns whether two jobs have the same position, size, region and extents.
inline bool asks_the_same(const JobInfo& a, const JobInfo& b) noexcept {
  const auto are_equal = [](const ImageRegion& x, const ImageRegion& y) {
    return equal(rectangle(x), rectangle(y));
  };
  return a.position == b.position && a.width == b.width && a.height == b.height &&
         are_equal(a.region, b.region) &&
         std::equal(a.extents.begin(), a.extents.end(), b.extents.begin(), b.extents.end(),
                    are_equal);
}

}  // namespace ctxbroker::detail
