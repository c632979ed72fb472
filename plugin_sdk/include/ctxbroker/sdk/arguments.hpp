// SPDX-License-Identifier: Apache-2.0
/// @file
/// A kernel's arguments: what can be one, and where each lies when they are packed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ctxbroker/sdk/device_buffer.hpp"
#include "ctxbroker/sdk/local.hpp"

namespace ctxbroker::sdk {

/// Whether a launch takes a T: a type that can be copied byte by byte, or a DeviceBuffer. An array
/// has to be in a struct.
template <class T>
CTXB_SDK_LOCAL inline constexpr bool is_kernel_argument_v =
    std::is_trivially_copyable_v<T> && !std::is_array_v<T>;
template <class T>
CTXB_SDK_LOCAL inline constexpr bool is_kernel_argument_v<DeviceBuffer<T>> = true;

namespace detail {

// What a kernel argument is: where its bytes are, how many, and their alignment.
template <class T>
struct CTXB_SDK_LOCAL Argument {
  static_assert(is_kernel_argument_v<T>,
                "a kernel argument must be trivially copyable and no array: a number, a device "
                "pointer, a DeviceBuffer or a struct of plain values");
  static const void* address(const T& value) { return &value; }
  static constexpr std::uint32_t size = static_cast<std::uint32_t>(sizeof(T));
  static constexpr std::uint32_t alignment = static_cast<std::uint32_t>(alignof(T));
};

template <class T>
struct CTXB_SDK_LOCAL Argument<DeviceBuffer<T>> {
  static const void* address(const DeviceBuffer<T>& buffer) { return &buffer.address(); }
  static constexpr std::uint32_t size = static_cast<std::uint32_t>(sizeof(std::uint64_t));
  static constexpr std::uint32_t alignment = size;
};

// One element more than needed, for a kernel without arguments.
template <std::size_t Count>
struct LayoutTable {
  std::uint32_t sizes[Count + 1] = {};
  std::uint32_t offsets[Count + 1] = {};
  std::uint32_t bytes = 0;
};

template <class... Arguments>
constexpr LayoutTable<sizeof...(Arguments)> make_layout() {
  constexpr auto count = static_cast<std::uint32_t>(sizeof...(Arguments));
  LayoutTable<sizeof...(Arguments)> table{};
  const std::uint32_t sizes[] = {Argument<Arguments>::size..., 0};
  const std::uint32_t alignments[] = {Argument<Arguments>::alignment..., 1};
  for (std::uint32_t i = 0; i < count; ++i) {
    table.sizes[i] = sizes[i];
    table.offsets[i] = (table.bytes + alignments[i] - 1) / alignments[i] * alignments[i];
    table.bytes = table.offsets[i] + sizes[i];
  }
  return table;
}

template <class... Arguments>
CTXB_SDK_LOCAL inline constexpr LayoutTable<sizeof...(Arguments)> layout =
    make_layout<Arguments...>();

}  // namespace detail

/// Where arguments of these types lie when they are packed.
///
/// Each lies at the next multiple of its type's alignment, as the device's compiler lays out a
/// kernel's parameters. double, std::int64_t and pointers are aligned to 8 bytes, and CUDA's float4
/// and double2 to 16. A struct of four floats of your own is aligned to 4, unless it says
/// alignas(16).
template <class... Arguments>
struct CTXB_SDK_LOCAL ArgumentLayout {
  /// The number of arguments.
  static constexpr std::uint32_t count = static_cast<std::uint32_t>(sizeof...(Arguments));
  /// Each one's size, in bytes.
  static constexpr const std::uint32_t* sizes = detail::layout<Arguments...>.sizes;
  /// Each one's distance from the beginning, in bytes.
  static constexpr const std::uint32_t* offsets = detail::layout<Arguments...>.offsets;
  /// The size of all of them, in bytes.
  static constexpr std::uint32_t bytes = detail::layout<Arguments...>.bytes;
};

/// Copies of a kernel's arguments in one piece. pack returns it, and Stream::launch_packed takes
/// it.
template <class... Arguments>
class PackedArguments {
 public:
  /// Copies the arguments.
  explicit PackedArguments(const Arguments&... arguments) noexcept {
    std::uint32_t index = 0;
    const auto put = [&](const void* from) {
      std::memcpy(bytes_ + Layout::offsets[index], from, Layout::sizes[index]);
      ++index;
    };
    (put(detail::Argument<Arguments>::address(arguments)), ...);
    static_cast<void>(put);
  }

  /// The piece. It lives as long as the object.
  [[nodiscard]] const void* data() const& noexcept { return bytes_; }
  const void* data() const&& = delete;

 private:
  using Layout = ArgumentLayout<Arguments...>;
  alignas(16) unsigned char bytes_[Layout::bytes + 1] = {};
};

/// Packs a kernel's arguments: job.launch_packed(kernel, shape, pack(out, in, count, 1.5F)).
///
/// @param arguments  the kernel's arguments, in order and with its exact types.
template <class... Arguments>
[[nodiscard]] PackedArguments<Arguments...> pack(const Arguments&... arguments) noexcept {
  return PackedArguments<Arguments...>(arguments...);
}

}  // namespace ctxbroker::sdk
