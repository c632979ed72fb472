// Little-endian numbers at any place in an image. Internal to image/.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "image/image.hpp"

namespace ctxbroker::image {

using Bytes = std::span<const std::byte>;

// The caller has checked that the number lies inside.
template <typename Number>
Number read(Bytes bytes, std::size_t offset) noexcept {
  static_assert(std::is_integral_v<Number>);
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

// Throws ImageError.
[[noreturn]] inline void fail(Reason reason, const std::string& message) {
  throw ImageError(reason, message);
}

}  // namespace ctxbroker::image
