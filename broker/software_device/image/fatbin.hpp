// NVIDIA's container for several images of one program. Internal to image/.
#pragma once

#include <cstdint>
#include <string>

#include "image/bytes.hpp"

namespace ctxbroker::software::image {

constexpr std::uint32_t fatbin_magic = 0xBA55ED50;
constexpr std::uint32_t wrapper_magic = 0x466243B1;
constexpr std::size_t wrapper_bytes = 24;
constexpr std::size_t fatbin_header_bytes = 16;

// The size that a fatbin's own header states; `header` holds fatbin_header_bytes. Throws
// ImageError.
std::uint64_t fatbin_size(Bytes header);

// Throws ImageError.
std::string extract_from_fatbin(Bytes fatbin, int compute);

}  // namespace ctxbroker::software::image
