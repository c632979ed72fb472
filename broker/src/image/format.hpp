// Which kind of image some bytes are, by how they begin. Internal to the project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ctxbroker::image {

enum class Format : std::uint8_t { text, fatbin, wrapper, elf, linked, unknown };

// Byte by byte: where the size is not known, nothing beyond the first difference is read.
Format format_of(const char* image, std::size_t size) noexcept;
inline Format format_of(std::span<const std::byte> image) noexcept {
  return format_of(reinterpret_cast<const char*>(image.data()), image.size());
}

// Throws ImageError.
[[noreturn]] void fail_unknown();

}  // namespace ctxbroker::image
