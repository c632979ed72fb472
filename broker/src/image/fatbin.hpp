// NVIDIA's container for several images of one program. Internal to image/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "image/bytes.hpp"
#include "image/target.hpp"
#include "image/unpack.hpp"

namespace ctxbroker::image {

// 0xBA55ED50 and 0x466243B1, as they stand in memory.
constexpr std::string_view fatbin_magic = "\x50\xED\x55\xBA";
constexpr std::string_view wrapper_magic = "\xB1\x43\x62\x46";
constexpr std::size_t wrapper_bytes = 24;
constexpr std::size_t fatbin_header_bytes = 16;

struct FatbinEntry {
  static constexpr std::uint16_t ptx = 1, elf = 2, link_time = 8;  // kinds

  std::size_t number = 0;  // from 1
  std::uint16_t kind = 0;
  Target target = {};
  Packing packing = Packing::none;
  bool is_64_bit = true;
  std::uint64_t unpacked_size = 0;  // meaningless where nothing is packed
  Bytes payload = {};
  std::string_view name = {};  // of the source; may be empty
};

// "entry 2 of the fatbin (PTX for sm_75)"
std::string name_of(const FatbinEntry& entry);

// The entry's code, unpacked. Throws ImageError.
std::string unpack(const FatbinEntry& entry);

// The size that a fatbin's own header states; `header` holds fatbin_header_bytes. Throws
// ImageError.
std::uint64_t fatbin_size(Bytes header);

// All entries, in order; they point into `fatbin`. Throws ImageError.
std::vector<FatbinEntry> read_fatbin(Bytes fatbin);

// The PTX for a device of this capability. Throws ImageError.
std::string extract_from_fatbin(Bytes fatbin, int compute);

}  // namespace ctxbroker::image
