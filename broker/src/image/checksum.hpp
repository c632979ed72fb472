// A checksum that shows whether an image has changed since it was built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ctxbroker::image {

// Returns what POSIX `cksum` prints for a file with these bytes. The sum finds all damage within 32
// neighbouring bits, and misses one in 2^32 of any other damage.
std::uint32_t checksum_of(std::span<const std::byte> bytes) noexcept;

}  // namespace ctxbroker::image
