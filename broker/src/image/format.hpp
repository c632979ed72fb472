// Recognises the format of an image by its first bytes. Internal to the project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ctxbroker::image {

enum class Format : std::uint8_t { text, fatbin, wrapper, elf, linked, unknown };

// Reads byte by byte and stops at the first difference, so `size` may be larger than the image when
// the real size is not known.
Format format_of(const char* image, std::size_t size) noexcept;
inline Format format_of(std::span<const std::byte> image) noexcept {
  return format_of(reinterpret_cast<const char*>(image.data()), image.size());
}

// Throws the ImageError for an image of unknown format.
[[noreturn]] void fail_unknown();

}  // namespace ctxbroker::image
