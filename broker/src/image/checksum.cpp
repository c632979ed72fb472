#include "image/checksum.hpp"

#include <boost/crc.hpp>

namespace ctxbroker::image {

std::uint32_t checksum_of(std::span<const std::byte> bytes) noexcept {
  boost::crc_optimal<32, 0x04C11DB7, 0, 0xFFFFFFFF, false, false> sum;
  sum.process_bytes(bytes.data(), bytes.size());
  // POSIX appends the length, in as few bytes as it needs.
  for (std::size_t count = bytes.size(); count != 0; count >>= 8U) {
    sum.process_byte(static_cast<unsigned char>(count & 0xFFU));
  }
  return sum.checksum();
}

}  // namespace ctxbroker::image
