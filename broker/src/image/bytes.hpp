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
#include "limits/limits.hpp"

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

// The allowance that one image has left for all its parts. An entry that is unpacked costs its
// bytes. A kernel or variable costs its name and a few bytes, and so does a symbol that is neither.
class Allowances {
 public:
  bool take_unpacked(std::uint64_t bytes) noexcept { return unpacked_.take(bytes); }
  // Throws ImageError.
  void take_name(std::size_t length) {
    constexpr std::uint64_t around_name = 64;
    if (!names_.take(length + around_name)) {
      fail(Reason::invalid, "the image has " + limits::beyond(limits::image_names));
    }
  }

 private:
  limits::Allowance unpacked_{limits::image_unpacked}, names_{limits::image_names};
};

}  // namespace ctxbroker::image
