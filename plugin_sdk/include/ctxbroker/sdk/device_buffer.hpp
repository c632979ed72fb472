// Device memory with an owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ctxbroker/sdk/gpu.hpp"

namespace ctxbroker::sdk {

// `size` values of T on the device; made by Activation::buffer, move-only. Pass it to a launch as
// it is: the kernel gets a T*. It is given back when it is destroyed or replaced (in activate or
// deactivate only), and after deactivate at the latest.
template <class T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>, "device memory holds plain values only");

 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept = default;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept = default;

  // False also once the activation is over or the context is lost.
  explicit operator bool() const noexcept { return allocation_.address() != 0; }
  std::size_t size() const noexcept { return *this ? size_ : 0; }
  std::uint64_t bytes() const noexcept { return static_cast<std::uint64_t>(size()) * sizeof(T); }
  // By reference, because a launch takes the address of its arguments.
  const std::uint64_t& address() const noexcept { return allocation_.address(); }

  void reset() noexcept { allocation_.reset(); }

 private:
  friend class Activation;
  DeviceBuffer(detail::Allocation allocation, std::size_t size) noexcept
      : allocation_(std::move(allocation)), size_(size) {}

  detail::Allocation allocation_;
  std::size_t size_ = 0;
};

}  // namespace ctxbroker::sdk
