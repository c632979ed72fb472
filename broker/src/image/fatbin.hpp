// SPDX-License-Identifier: Apache-2.0
// Reads fatbins: NVIDIA's container for several images of one program. Internal to image/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/kernel_image.hpp"
#include "image/bytes.hpp"
#include "image/ptx_text.hpp"

namespace ctxbroker::image {

// 0xBA55ED50 and 0x466243B1 in little-endian byte order.
constexpr std::string_view fatbin_magic = "\x50\xED\x55\xBA";
constexpr std::string_view wrapper_magic = "\xB1\x43\x62\x46";
constexpr std::size_t wrapper_bytes = 24;
constexpr std::size_t fatbin_header_bytes = 16;

struct FatbinEntry {
  static constexpr std::uint16_t ptx = 1, elf = 2, link_time = 8;  // kinds

  std::size_t number = 0;  // from 1
  std::uint16_t kind = 0;
  Target target = {};
  Compression packing = Compression::none;
  bool is_64_bit = true;
  std::uint64_t unpacked_size = 0;  // undefined when the entry is not packed
  Bytes payload = {};
  std::string_view name = {};  // of the source; may be empty
};

// Returns a name for error messages: "entry 2 of the fatbin (PTX for sm_75)".
std::string name_of(const FatbinEntry& entry);

// Returns the entry's code, unpacked. Throws ImageError when the packed data is corrupt or too
// large.
std::string unpack(const FatbinEntry& entry, Allowances& allowances);

// Returns the size that a fatbin's header states. `header` holds fatbin_header_bytes. Throws
// ImageError.
std::uint64_t fatbin_size(Bytes header);

// Returns all entries in order. They point into `fatbin`. Throws ImageError.
std::vector<FatbinEntry> read_fatbin(Bytes fatbin);

// Returns the PTX for a device of this compute capability. Throws ImageError when there is none.
std::string extract_from_fatbin(Bytes fatbin, int compute);

}  // namespace ctxbroker::image
