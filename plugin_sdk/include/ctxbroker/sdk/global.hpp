// A variable of a module, with its type.
#pragma once

#include <cstdint>
#include <type_traits>

namespace ctxbroker::sdk {

// A __device__ or __constant__ variable of type T (an array: float[16]); made by
// Activation::global<T>, which checks its size. Good for one activation.
template <class T>
class Global {
  static_assert(std::is_trivially_copyable_v<T>, "a device variable holds plain values only");

 public:
  Global() = default;
  explicit operator bool() const noexcept { return address_ != 0; }
  const std::uint64_t& address() const noexcept { return address_; }
  static constexpr std::uint64_t bytes() noexcept { return sizeof(T); }

 private:
  friend class Activation;
  explicit Global(std::uint64_t address) noexcept : address_(address) {}

  std::uint64_t address_ = 0;
};

}  // namespace ctxbroker::sdk
