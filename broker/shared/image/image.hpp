// SPDX-License-Identifier: Apache-2.0
// Reads what cuModuleLoadData takes: PTX, a fatbin or a cubin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "ctxbroker/kernel_image.hpp"
#include "image/image_error.hpp"

namespace ctxbroker::image {

// Returns the size of an image that comes without a length: the size that its header states, or the
// length of PTX text up to its terminating 0. cuModuleLoadData has to trust this. Throws
// ImageError.
std::size_t image_size(const void* image);

// Returns the PTX with the highest .target that is not above `compute` (10 * major + minor),
// unpacked where it was packed with zstd or lz4. Throws ImageError when the image has none.
std::string extract_ptx(std::span<const std::byte> image, int compute);

enum class Format : std::uint8_t { text, fatbin, wrapper, elf, linked, unknown };

// Reads byte by byte and stops at the first difference, so `size` may be larger than the image when
// the real size is not known.
Format format_of(const char* image, std::size_t size) noexcept;
inline Format format_of(std::span<const std::byte> image) noexcept {
  return format_of(reinterpret_cast<const char*>(image.data()), image.size());
}

// Reads what an image holds without loading it. Throws ImageError when the image is truncated,
// corrupt or of an unknown format.
KernelImage describe(std::span<const std::byte> image);

// Returns what POSIX `cksum` prints for a file with these bytes, which shows whether an image has
// changed since it was built. The sum finds all damage within 32 neighbouring bits, and misses one
// in 2^32 of any other damage.
std::uint32_t checksum_of(std::span<const std::byte> bytes) noexcept;

// Throws the ImageError for an image of unknown format.
[[noreturn]] void fail_unknown();

}  // namespace ctxbroker::image
