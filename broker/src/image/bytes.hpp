// SPDX-License-Identifier: Apache-2.0
// Reads little-endian numbers, and structs of them, from the bytes of an image. Internal to image/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "image/image_error.hpp"

namespace ctxbroker::image {

using Bytes = std::span<const std::byte>;

// Reads the number or struct at `offset`. The caller checks first that it lies inside `bytes`.
template <typename Value>
Value read(Bytes bytes, std::size_t offset) noexcept {
  static_assert(std::is_trivially_copyable_v<Value>);
  Value value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// Throws an ImageError.
[[noreturn]] inline void fail(Reason reason, const std::string& message) {
  throw ImageError(reason, message);
}

// The reader refuses images that claim to be larger than this.
namespace limits {

constexpr std::uint64_t image_bytes = std::uint64_t{2} << 30;
constexpr std::uint64_t ptx_bytes = std::uint64_t{256} << 20;     // unpacked
constexpr std::uint64_t unpacked_bytes = std::uint64_t{1} << 30;  // all entries of one image

}  // namespace limits

}  // namespace ctxbroker::image
