// The number that tells whether an image is still what was built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ctxbroker::image {

// As POSIX cksum prints it for a file of these bytes: every machine has that tool. Finds every
// damage within 32 neighbouring bits, and of any other all but one in 2^32.
std::uint32_t checksum_of(std::span<const std::byte> bytes) noexcept;

}  // namespace ctxbroker::image
