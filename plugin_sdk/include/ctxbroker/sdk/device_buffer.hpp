// SPDX-License-Identifier: Apache-2.0
/// @file
/// Device memory with an owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ctxbroker/sdk/gpu.hpp"

namespace ctxbroker::sdk {

/// Device memory for values of type T. Activation::buffer returns it. It is move-only.
///
/// Pass it to a launch as it is; the kernel gets a T*. The destructor gives the memory
/// back, which is allowed in activate and deactivate only. After deactivate, and after a loss of
/// the context, it is empty.
template <class T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "device memory holds plain values only");

 public:
  /// Holds nothing.
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept = default;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept = default;

  /// Whether it holds memory.
  explicit operator bool() const noexcept { return allocation_.address() != 0; }
  /// How many values it has room for; 0 when it is empty.
  [[nodiscard]] std::size_t size() const noexcept { return *this ? size_ : 0; }
  /// Its size in bytes; 0 when it is empty.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return static_cast<std::uint64_t>(size()) * sizeof(T);
  }
  /// The device address, or 0 when it is empty. It is a reference, because a launch takes the
  /// address of its arguments.
  [[nodiscard]] const std::uint64_t& address() const& noexcept { return allocation_.address(); }
  const std::uint64_t& address() const&& = delete;  // The memory ends with the buffer: keep it.

  /// Gives the memory back and leaves the buffer empty. [main] [ctx]; in activate or deactivate.
  void reset() noexcept { allocation_.reset(); }

 private:
  friend class Activation;
  DeviceBuffer(detail::Allocation allocation, std::size_t size) noexcept
      : allocation_(std::move(allocation)), size_(size) {}

  detail::Allocation allocation_;
  std::size_t size_ = 0;
};

}  // namespace ctxbroker::sdk
