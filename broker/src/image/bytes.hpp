// Reads little-endian numbers from the bytes of an image. Internal to image/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "image/image.hpp"

namespace ctxbroker::image {

using Bytes = std::span<const std::byte>;

// Reads the number at `offset`. The caller checks first that the number lies inside `bytes`.
template <typename Number>
Number read(Bytes bytes, std::size_t offset) noexcept {
  static_assert(std::is_integral_v<Number>);
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
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
