// NVIDIA's container for several images of one program. Internal to image/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "image/bytes.hpp"

namespace ctxbroker::software::image {

// 0xBA55ED50 and 0x466243B1, as they stand in memory.
constexpr std::string_view fatbin_magic = "\x50\xED\x55\xBA";
constexpr std::string_view wrapper_magic = "\xB1\x43\x62\x46";
constexpr std::size_t wrapper_bytes = 24;
constexpr std::size_t fatbin_header_bytes = 16;

// The size that a fatbin's own header states; `header` holds fatbin_header_bytes. Throws
// ImageError.
std::uint64_t fatbin_size(Bytes header);

// Throws ImageError.
std::string extract_from_fatbin(Bytes fatbin, int compute);

}  // namespace ctxbroker::software::image
