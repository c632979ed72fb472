// SPDX-License-Identifier: Apache-2.0
#include "image/fatbin.hpp"

#include <lz4.h>
#include <zstd.h>
#include <algorithm>
#include <vector>

#include "image/bytes.hpp"

namespace ctxbroker::image {

namespace {

// LZ4 cannot expand one byte to more than this, so a larger stated size is refused before memory is
// allocated for it.
constexpr std::uint64_t largest_lz4_ratio = 255;

[[noreturn]] void fail_corrupt(std::string_view what, const std::string& why) {
  fail(Reason::invalid, std::string(what) + " is corrupt: " + why);
}

std::string unpack_zstd(Bytes packed, std::uint64_t size, std::string_view what) {
  // The frame states its size too. Compare the two before allocating memory for either.
  const auto stated = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (stated == ZSTD_CONTENTSIZE_ERROR) fail_corrupt(what, "no zstd data where it should be");
  if (stated != ZSTD_CONTENTSIZE_UNKNOWN && stated != size) {
    fail_corrupt(what, "the fatbin says it has " + std::to_string(size) +
                           " bytes unpacked, the zstd data says " + std::to_string(stated));
  }
  std::string text(size, '\0');
  const std::size_t got = ZSTD_decompress(text.data(), size, packed.data(), packed.size());
  if (ZSTD_isError(got) != 0) fail_corrupt(what, std::string("zstd: ") + ZSTD_getErrorName(got));
  text.resize(got);
  return text;
}

std::string unpack_lz4(Bytes packed, std::uint64_t size, std::string_view what) {
  if (size > packed.size() * largest_lz4_ratio) {
    fail_corrupt(what, std::to_string(packed.size()) + " bytes of lz4 data cannot hold " +
                           std::to_string(size));
  }
  std::string text(size, '\0');
  const int got = LZ4_decompress_safe(reinterpret_cast<const char*>(packed.data()), text.data(),
                                      static_cast<int>(packed.size()), static_cast<int>(size));
  if (got < 0) fail_corrupt(what, "the lz4 data cannot be unpacked");
  text.resize(static_cast<std::size_t>(got));
  return text;
}

std::string unpack_bytes(Bytes packed, Compression packing, std::uint64_t size,
                         const limits::Limit& limit, std::string_view what) {
  if (packing == Compression::none) size = packed.size();
  if (size > limit.most || packed.size() > limit.most) {
    fail(Reason::invalid, std::string(what) + " has " + limits::beyond(limit));
  }
  if (packing == Compression::none) {
    return {reinterpret_cast<const char*>(packed.data()), packed.size()};
  }
  std::string text = packing == Compression::zstd ? unpack_zstd(packed, size, what)
                                                  : unpack_lz4(packed, size, what);
  if (text.size() != size) {
    fail_corrupt(what, "it unpacks to " + std::to_string(text.size()) + " bytes, not to " +
                           std::to_string(size));
  }
  return text;
}

// Byte offsets from the beginning of the header and of each entry, measured on the output of nvcc
// 13.0.
namespace header {
constexpr std::size_t header_size = 6, payload_size = 8;
}
namespace entry {
constexpr std::size_t kind = 0, header_size = 4, payload_size = 8, packed_size = 16, arch = 28,
                      name_at = 32, name_size = 36, flags = 40, unpacked_size = 56;
constexpr std::size_t least_header = 64;
constexpr std::uint64_t flag_64_bit = 0x1, flag_lz4 = 0x2000, flag_zstd = 0x8000,
                        flag_arch_specific = 0x100000, flag_family_specific = 0x200000;
}  // namespace entry

[[noreturn]] void fail_entry(std::size_t number, std::size_t offset, const std::string& why) {
  fail(Reason::invalid, "the fatbin is truncated or corrupt: entry " + std::to_string(number) +
                            " at byte " + std::to_string(offset) + " " + why);
}

Compression packing_of(std::uint64_t flags) noexcept {
  if ((flags & entry::flag_zstd) != 0) return Compression::zstd;
  return (flags & entry::flag_lz4) != 0 ? Compression::lz4 : Compression::none;
}

char variant_of(std::uint64_t flags) noexcept {
  if ((flags & entry::flag_arch_specific) != 0) return 'a';
  return (flags & entry::flag_family_specific) != 0 ? 'f' : '\0';
}

// The name that the header points to. Empty when there is none or when it lies outside the header.
std::string_view name_in(Bytes header) {
  const auto at = read<std::uint32_t>(header, entry::name_at);
  const auto size = read<std::uint32_t>(header, entry::name_size);
  if (at > header.size() || size > header.size() - at) return {};
  return {reinterpret_cast<const char*>(header.data()) + at, size};
}

// Reads the entry at the beginning of `rest` and moves `rest` on to the next entry.
FatbinEntry take_entry(Bytes& rest, std::size_t number, std::size_t offset) {
  if (rest.size() < entry::least_header) fail_entry(number, offset, "has no room for its header");
  const auto header_size = read<std::uint32_t>(rest, entry::header_size);
  const auto payload_size = read<std::uint64_t>(rest, entry::payload_size);
  if (header_size < entry::least_header || header_size > rest.size()) {
    fail_entry(number, offset, "says its header has " + std::to_string(header_size) + " bytes");
  }
  const Bytes payload = rest.subspan(header_size);
  if (payload_size > payload.size()) {
    fail_entry(number, offset,
               "says it has " + std::to_string(payload_size) + " bytes where " +
                   std::to_string(payload.size()) + " are left");
  }
  const auto flags = read<std::uint64_t>(rest, entry::flags);
  FatbinEntry result{.number = number, .kind = read<std::uint16_t>(rest, entry::kind)};
  const auto arch = read<std::uint32_t>(rest, entry::arch);
  result.target = {static_cast<int>(std::min<std::uint32_t>(arch, 9999)), variant_of(flags)};
  result.packing = packing_of(flags);
  result.is_64_bit = (flags & entry::flag_64_bit) != 0;
  result.name = name_in(rest.first(header_size));
  result.unpacked_size = read<std::uint64_t>(rest, entry::unpacked_size);
  // Up to 7 bytes of padding may follow packed data.
  const auto packed_size = read<std::uint32_t>(rest, entry::packed_size);
  std::uint64_t size = payload_size;
  if (result.packing != Compression::none) {
    if (packed_size > payload_size) {
      fail_entry(number, offset,
                 "says it has " + std::to_string(packed_size) + " packed bytes in " +
                     std::to_string(payload_size));
    }
    size = packed_size;
  }
  result.payload = payload.first(size);
  rest = payload.subspan(payload_size);
  return result;
}

// The targets of all entries of this kind: "sm_75, sm_90".
std::string list_targets(const std::vector<FatbinEntry>& entries, std::uint16_t kind) {
  std::string list;
  for (const FatbinEntry& entry : entries) {
    if (entry.kind != kind) continue;
    if (!list.empty()) list += ", ";
    list += to_string(entry.target);
  }
  return list;
}

std::string compute_name(int compute) {
  return "compute_" + std::to_string(compute);
}

std::string how_to_build(int compute) {
  const std::string name = compute_name(compute);
  return "; build it with -gencode arch=" + name + ",code=" + name + " (or lower) as well";
}

[[noreturn]] void fail_without_ptx(const std::vector<FatbinEntry>& entries, int compute) {
  const std::string machine_code = list_targets(entries, FatbinEntry::elf);
  const std::string link_time_code = list_targets(entries, FatbinEntry::link_time);
  std::string held = "nothing that this reader knows";
  if (!link_time_code.empty())
    held = "code for link-time optimisation only (" + link_time_code + ")";
  if (!machine_code.empty()) held = "machine code only (" + machine_code + ")";
  fail(Reason::no_ptx,
       "the fatbin holds " + held + ", and the software device runs PTX" + how_to_build(compute));
}

}  // namespace

std::string name_of(const FatbinEntry& entry) {
  const char* what = "unknown code";
  if (entry.kind == FatbinEntry::ptx) what = "PTX";
  if (entry.kind == FatbinEntry::elf) what = "machine code";
  if (entry.kind == FatbinEntry::link_time) what = "link-time code";
  return "entry " + std::to_string(entry.number) + " of the fatbin (" + what + " for " +
         to_string(entry.target) + ")";
}

std::string unpack(const FatbinEntry& entry, Allowances& allowances) {
  const bool is_packed = entry.packing != Compression::none;
  if (!allowances.take_unpacked(is_packed ? entry.unpacked_size : entry.payload.size())) {
    fail(Reason::invalid,
         name_of(entry) + " and those before it have " + limits::beyond(limits::image_unpacked));
  }
  const limits::Limit& limit =
      entry.kind == FatbinEntry::ptx ? limits::ptx_text : limits::image_code;
  return unpack_bytes(entry.payload, entry.packing, entry.unpacked_size, limit, name_of(entry));
}

std::uint64_t fatbin_size(Bytes header) {
  const auto header_size = read<std::uint16_t>(header, header::header_size);
  const auto payload_size = read<std::uint64_t>(header, header::payload_size);
  if (header_size < fatbin_header_bytes) {
    fail(Reason::invalid,
         "the fatbin is corrupt: it says its header has " + std::to_string(header_size) + " bytes");
  }
  if (payload_size > limits::image_bytes.most) {
    fail(Reason::invalid,
         "the fatbin is corrupt, or it has " + limits::beyond(limits::image_bytes));
  }
  return header_size + payload_size;
}

std::vector<FatbinEntry> read_fatbin(Bytes fatbin) {
  if (fatbin.size() < fatbin_header_bytes) {
    fail(Reason::invalid, "the fatbin is truncated: " + std::to_string(fatbin.size()) +
                              " bytes are less than its header");
  }
  const auto header_size = read<std::uint16_t>(fatbin, header::header_size);
  const std::uint64_t size = fatbin_size(fatbin);
  if (size > fatbin.size()) {
    fail(Reason::invalid, "the fatbin is truncated: it says it has " + std::to_string(size) +
                              " bytes, " + std::to_string(fatbin.size()) + " are there");
  }
  std::vector<FatbinEntry> entries;
  Bytes rest = fatbin.first(size).subspan(header_size);
  while (!rest.empty()) {
    if (entries.size() == limits::image_parts.most) {
      fail(Reason::invalid, "the fatbin has " + limits::beyond(limits::image_parts));
    }
    entries.push_back(take_entry(rest, entries.size() + 1, size - rest.size()));
  }
  return entries;
}

std::string extract_from_fatbin(Bytes fatbin, int compute) {
  const std::vector<FatbinEntry> entries = read_fatbin(fatbin);
  std::vector<const FatbinEntry*> candidates;
  bool any_ptx = false;
  for (const FatbinEntry& entry : entries) {
    if (entry.kind != FatbinEntry::ptx) continue;
    any_ptx = true;
    if (runs_on(entry.target, compute)) candidates.push_back(&entry);
  }
  if (!any_ptx) fail_without_ptx(entries, compute);
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const FatbinEntry* a, const FatbinEntry* b) {
                     if (a->target.capability != b->target.capability) {
                       return a->target.capability > b->target.capability;
                     }
                     return a->target.variant < b->target.variant;
                   });
  Allowances allowances;
  for (const FatbinEntry* candidate : candidates) {
    std::string text = unpack(*candidate, allowances);
    text.resize(std::min(text.find('\0'), text.size()));
    const auto target = find_target(text);
    if (!target) {
      fail(Reason::invalid, name_of(*candidate) + " is corrupt: no .version and .target in it");
    }
    // The text decides, because older tools mark variants only there.
    if (runs_on(*target, compute)) return text;
  }
  fail(Reason::newer_ptx, "the fatbin's PTX is for " + list_targets(entries, FatbinEntry::ptx) +
                              ", this device is " + compute_name(compute) + how_to_build(compute));
}

}  // namespace ctxbroker::image
