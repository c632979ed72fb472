// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rectangles of pixels, and what a plug-in that works on parts of pictures is asked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/failure.hpp"
#include "ctxbroker/sdk/parameter.hpp"

namespace ctxbroker::sdk {

/// Members x, y, width and height. The first pixel of a picture need not be (0, 0).
using Rectangle = ctxb_rectangle;

namespace detail {

// Beyond what a host accepts, but without an overflow.
inline std::int32_t coordinate(std::int64_t value) noexcept {
  constexpr std::int64_t limit = INT32_MAX;
  return static_cast<std::int32_t>(std::clamp(value, -limit, limit));
}

inline Rectangle between(std::int64_t left, std::int64_t top, std::int64_t right,
                         std::int64_t bottom) noexcept {
  const std::int32_t x = coordinate(left), y = coordinate(top);
  return {x, y, static_cast<std::uint32_t>(coordinate(right) - std::int64_t{x}),
          static_cast<std::uint32_t>(coordinate(bottom) - std::int64_t{y})};
}

inline std::int64_t right_of(const Rectangle& one) noexcept {
  return std::int64_t{one.x} + one.width;
}
inline std::int64_t bottom_of(const Rectangle& one) noexcept {
  return std::int64_t{one.y} + one.height;
}

}  // namespace detail

/// Returns a rectangle that reaches so many pixels further on each side.
[[nodiscard]] inline Rectangle grown(const Rectangle& one, std::uint32_t pixels) noexcept {
  return detail::between(std::int64_t{one.x} - pixels, std::int64_t{one.y} - pixels,
                         detail::right_of(one) + pixels, detail::bottom_of(one) + pixels);
}

/// Returns the smallest rectangle around two.
[[nodiscard]] inline Rectangle around(const Rectangle& a, const Rectangle& b) noexcept {
  return detail::between(std::min(a.x, b.x), std::min(a.y, b.y),
                         std::max(detail::right_of(a), detail::right_of(b)),
                         std::max(detail::bottom_of(a), detail::bottom_of(b)));
}

/// Returns the part of a rectangle that lies inside another one, which is not empty. If there is
/// none, it returns the pixel inside that is nearest to the rectangle's first one.
[[nodiscard]] inline Rectangle within(const Rectangle& one, const Rectangle& outer) noexcept {
  const auto first = [](std::int64_t at, std::int64_t from, std::int64_t to) {
    return std::clamp(at, from, to - 1);
  };
  const std::int64_t x = first(one.x, outer.x, detail::right_of(outer));
  const std::int64_t y = first(one.y, outer.y, detail::bottom_of(outer));
  return detail::between(
      x, y, std::max(x + 1, std::min(detail::right_of(one), detail::right_of(outer))),
      std::max(y + 1, std::min(detail::bottom_of(one), detail::bottom_of(outer))));
}

/// What a question of the host is about: the parameters, and the extents of the inputs. It is valid
/// during the call.
class RegionQuestion : public ParameterValues {
 public:
  /// Only the SDK constructs one.
  explicit RegionQuestion(const ctxb_region_question& raw) noexcept
      : ParameterValues(raw.parameters, raw.parameter_count), raw_(&raw) {}

  /// Whether an input is connected.
  [[nodiscard]] bool has_input(std::uint32_t port) const { return at(port).width != 0; }
  /// How large the whole picture of a connected input is.
  /// @throws Failure  CTXB_ERROR_INVALID_ARGUMENT when there is no such port, or it is not
  /// connected.
  [[nodiscard]] const Rectangle& extent(std::uint32_t port = 0) const {
    if (!has_input(port)) {
      throw Failure(CTXB_ERROR_INVALID_ARGUMENT,
                    "the input " + std::to_string(port) + " is not connected");
    }
    return at(port);
  }
  /// The number of the frame.
  [[nodiscard]] std::int64_t position() const noexcept { return raw_->position; }

 private:
  [[nodiscard]] const Rectangle& at(std::uint32_t port) const {
    if (port < raw_->input_count) return raw_->extents[port];
    throw Failure(CTXB_ERROR_INVALID_ARGUMENT,
                  "the input " + std::to_string(port) + " does not exist");
  }

  const ctxb_region_question* raw_;
};

}  // namespace ctxbroker::sdk
