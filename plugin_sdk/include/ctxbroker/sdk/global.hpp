// SPDX-License-Identifier: Apache-2.0
/// @file
/// A variable of a module, with its type.
#pragma once

#include <cstdint>
#include <type_traits>

namespace ctxbroker::sdk {

/// A `__device__` or `__constant__` variable of type T, which can be an array type: float[16].
/// Activation::global returns it after it has checked the variable's size. It is good for one
/// activation.
template <class T>
class Global {
  static_assert(std::is_trivially_copyable_v<T>, "a device variable holds plain values only");

 public:
  /// No variable.
  Global() = default;
  /// Whether there is a variable.
  explicit operator bool() const noexcept { return address_ != 0; }
  /// The device address, or 0.
  [[nodiscard]] const std::uint64_t& address() const& noexcept { return address_; }
  [[nodiscard]] std::uint64_t address() const&& noexcept { return address_; }
  /// The variable's size in bytes.
  [[nodiscard]] static constexpr std::uint64_t bytes() noexcept { return sizeof(T); }

 private:
  friend class Activation;
  explicit Global(std::uint64_t address) noexcept : address_(address) {}

  std::uint64_t address_ = 0;
};

}  // namespace ctxbroker::sdk
