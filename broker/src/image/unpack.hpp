// Decompression of a fatbin's entries. Internal to image/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "image/bytes.hpp"

namespace ctxbroker::image {

enum class Packing : std::uint8_t { none, zstd, lz4 };

// `size`: what the fatbin says the text has when unpacked. Throws ImageError when it does not come
// out so, or is larger than is believed; `what` names the entry in the error.
std::string unpack(Bytes packed, Packing packing, std::uint64_t size, std::string_view what);

}  // namespace ctxbroker::image
