// SPDX-License-Identifier: Apache-2.0
/// @file
/// The value of a parameter that is not text.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace ctxbroker {

/// The numbers of one parameter: one, or x and y of a point, or red, green, blue and alpha of a
/// colour. It converts from a number, so `set_parameter("radius", 6)` works, and so does
/// `set_parameter("centre", {0.5, 0.25})`.
class ParameterValue {
 public:
  /// One number.
  constexpr ParameterValue(double number = 0) noexcept : numbers_{number}, count_(1) {}
  /// A point.
  constexpr ParameterValue(double x, double y) noexcept : numbers_{x, y}, count_(2) {}
  /// A colour.
  constexpr ParameterValue(double red, double green, double blue, double alpha) noexcept
      : numbers_{red, green, blue, alpha}, count_(4) {}

  /// How many numbers there are: 1, 2 or 4.
  [[nodiscard]] constexpr std::size_t count() const noexcept { return count_; }
  /// The first number, which is the value of most parameters.
  [[nodiscard]] constexpr double number() const noexcept { return numbers_[0]; }
  /// Number `index`. Those from count() to 3 are 0.
  [[nodiscard]] constexpr double operator[](std::size_t index) const noexcept {
    return numbers_[index];
  }
  /// The numbers, for a loop.
  [[nodiscard]] constexpr const double* begin() const& noexcept { return numbers_.data(); }
  [[nodiscard]] constexpr const double* end() const& noexcept { return numbers_.data() + count_; }
  const double* begin() const&& = delete;  // The numbers end with the value: keep it.
  const double* end() const&& = delete;

  friend bool operator==(const ParameterValue& a, const ParameterValue& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend bool operator!=(const ParameterValue& a, const ParameterValue& b) noexcept {
    return !(a == b);
  }

 private:
  std::array<double, 4> numbers_;
  std::size_t count_;
};

/// What a call did that sets a parameter and cannot throw.
enum class ParameterStatus {
  set,                ///< The next job gets the value.
  unknown_parameter,  ///< The plug-in has no parameter with that index.
  bad_value,          ///< The value has another number of numbers, or is not allowed.
  /// The parameter is not automatable and the instance is active. Deactivate it first.
  not_automatable,
};

}  // namespace ctxbroker
