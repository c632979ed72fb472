#include "image/fatbin.hpp"

#include <algorithm>
#include <vector>

#include "image/limits.hpp"
#include "image/target.hpp"
#include "image/unpack.hpp"

namespace ctxbroker::software::image {

namespace {

// Where things stand, from the beginning of the header and of each entry; measured on what nvcc
// 13.0 writes.
namespace header {
constexpr std::size_t header_size = 6, payload_size = 8;
}
namespace entry {
constexpr std::size_t kind = 0, header_size = 4, payload_size = 8, packed_size = 16, arch = 28,
                      flags = 40, unpacked_size = 56;
constexpr std::size_t least_header = 64;
constexpr std::uint16_t kind_ptx = 1, kind_elf = 2, kind_link_time = 8;
constexpr std::uint64_t flag_lz4 = 0x2000, flag_zstd = 0x8000, flag_arch_specific = 0x100000,
                        flag_family_specific = 0x200000;
}  // namespace entry

struct Entry {
  std::size_t number = 0;  // from 1
  std::uint16_t kind = 0;
  Target target = {};
  Packing packing = Packing::none;
  std::uint64_t unpacked_size = 0;
  Bytes payload = {};
};

std::string name_of(const Entry& entry) {
  return "entry " + std::to_string(entry.number) + " of the fatbin (PTX for " +
         to_string(entry.target) + ")";
}

[[noreturn]] void fail_entry(std::size_t number, std::size_t offset, const std::string& why) {
  fail(Reason::invalid, "the fatbin is truncated or corrupt: entry " + std::to_string(number) +
                            " at byte " + std::to_string(offset) + " " + why);
}

Packing packing_of(std::uint64_t flags) noexcept {
  if ((flags & entry::flag_zstd) != 0) return Packing::zstd;
  return (flags & entry::flag_lz4) != 0 ? Packing::lz4 : Packing::none;
}

char variant_of(std::uint64_t flags) noexcept {
  if ((flags & entry::flag_arch_specific) != 0) return 'a';
  return (flags & entry::flag_family_specific) != 0 ? 'f' : '\0';
}

// The entry at the beginning of `rest`; moves on to the next.
Entry take_entry(Bytes& rest, std::size_t number, std::size_t offset) {
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
  Entry result{.number = number, .kind = read<std::uint16_t>(rest, entry::kind)};
  const auto arch = read<std::uint32_t>(rest, entry::arch);
  result.target = {static_cast<int>(std::min<std::uint32_t>(arch, 9999)), variant_of(flags)};
  result.packing = packing_of(flags);
  result.unpacked_size = read<std::uint64_t>(rest, entry::unpacked_size);
  // What is packed may be followed by up to 7 bytes that fill it up.
  const auto packed_size = read<std::uint32_t>(rest, entry::packed_size);
  std::uint64_t size = payload_size;
  if (result.packing != Packing::none) {
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

std::vector<Entry> read_entries(Bytes fatbin) {
  const auto header_size = read<std::uint16_t>(fatbin, header::header_size);
  const std::uint64_t size = fatbin_size(fatbin);
  if (size > fatbin.size()) {
    fail(Reason::invalid, "the fatbin is truncated: it says it has " + std::to_string(size) +
                              " bytes, " + std::to_string(fatbin.size()) + " are there");
  }
  std::vector<Entry> entries;
  Bytes rest = fatbin.first(size).subspan(header_size);
  while (!rest.empty()) {
    entries.push_back(take_entry(rest, entries.size() + 1, size - rest.size()));
  }
  return entries;
}

// "sm_75 and sm_90", of all entries of the kind.
std::string list_targets(const std::vector<Entry>& entries, std::uint16_t kind) {
  std::string list;
  for (const Entry& entry : entries) {
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

[[noreturn]] void fail_without_ptx(const std::vector<Entry>& entries, int compute) {
  const std::string machine_code = list_targets(entries, entry::kind_elf);
  const std::string link_time_code = list_targets(entries, entry::kind_link_time);
  std::string held = "nothing that this reader knows";
  if (!link_time_code.empty())
    held = "code for link-time optimisation only (" + link_time_code + ")";
  if (!machine_code.empty()) held = "machine code only (" + machine_code + ")";
  fail(Reason::no_ptx,
       "the fatbin holds " + held + ", and the software device runs PTX" + how_to_build(compute));
}

}  // namespace

std::uint64_t fatbin_size(Bytes header) {
  const auto header_size = read<std::uint16_t>(header, header::header_size);
  const auto payload_size = read<std::uint64_t>(header, header::payload_size);
  if (header_size < fatbin_header_bytes) {
    fail(Reason::invalid,
         "the fatbin is corrupt: it says its header has " + std::to_string(header_size) + " bytes");
  }
  if (payload_size > limits::image_bytes) {
    fail(Reason::invalid, "the fatbin is corrupt or absurdly large: it says it has " +
                              std::to_string(payload_size) + " bytes");
  }
  return header_size + payload_size;
}

std::string extract_from_fatbin(Bytes fatbin, int compute) {
  if (fatbin.size() < fatbin_header_bytes) {
    fail(Reason::invalid, "the fatbin is truncated: " + std::to_string(fatbin.size()) +
                              " bytes are less than its header");
  }
  const std::vector<Entry> entries = read_entries(fatbin);
  std::vector<const Entry*> candidates;
  bool any_ptx = false;
  for (const Entry& entry : entries) {
    if (entry.kind != entry::kind_ptx) continue;
    any_ptx = true;
    if (runs_on(entry.target, compute)) candidates.push_back(&entry);
  }
  if (!any_ptx) fail_without_ptx(entries, compute);
  std::stable_sort(candidates.begin(), candidates.end(), [](const Entry* a, const Entry* b) {
    if (a->target.capability != b->target.capability) {
      return a->target.capability > b->target.capability;
    }
    return a->target.variant < b->target.variant;
  });
  for (const Entry* candidate : candidates) {
    std::string text = unpack(candidate->payload, candidate->packing, candidate->unpacked_size,
                              name_of(*candidate));
    text.resize(std::min(text.find('\0'), text.size()));
    const auto target = find_target(text);
    if (!target) {
      fail(Reason::invalid, name_of(*candidate) + " is corrupt: no .version and .target in it");
    }
    // The text is what counts: older tools mark variants in the text alone.
    if (runs_on(*target, compute)) return text;
  }
  fail(Reason::newer_ptx, "the fatbin's PTX is for " + list_targets(entries, entry::kind_ptx) +
                              ", this device is " + compute_name(compute) + how_to_build(compute));
}

}  // namespace ctxbroker::software::image
