// SPDX-License-Identifier: Apache-2.0
#include "image/image.hpp"

#include <boost/crc.hpp>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "image/bytes.hpp"
#include "image/cubin.hpp"
#include "image/elf.hpp"
#include "image/fatbin.hpp"
#include "image/linked.hpp"
#include "image/ptx_text.hpp"

namespace ctxbroker::image {
namespace {

// PTX text begins with a blank, a comment or a directive.
bool begins_text(char c) noexcept {
  return c == '.' || c == '/' || c == '#' || c == ' ' || (c >= '\t' && c <= '\r');
}

bool begins_with(const char* image, std::size_t size, std::string_view magic) noexcept {
  if (size < magic.size()) return false;
  for (std::size_t i = 0; i < magic.size(); ++i) {
    if (image[i] != magic[i]) return false;
  }
  return true;
}

[[noreturn]] void fail_elf(Bytes image, int compute) {
  const std::string name = "compute_" + std::to_string(compute);
  fail(Reason::no_ptx,
       "the image is a cubin, machine code for " + to_string(read_cubin_target(image)) +
           " only, and the software device runs PTX; give it the PTX (nvcc -ptx) or "
           "a fatbin that holds PTX (-gencode arch=" +
           name + ",code=" + name + " or lower)");
}

std::string_view text_of(Bytes image) {
  std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  text = text.substr(0, text.find('\0'));
  if (text.size() > limits::ptx_text.most) {
    fail(Reason::invalid, "the text has " + limits::beyond(limits::ptx_text));
  }
  return text;
}

std::string extract_from_text(Bytes image, int compute) {
  const std::string_view text = text_of(image);
  const auto target = find_target(text);
  if (!target) {
    fail(Reason::invalid,
         "the image begins like text but is not PTX: '.version' and '.target sm_NN' must stand "
         "first");
  }
  if (!runs_on(*target, compute)) {
    fail(Reason::newer_ptx, "the PTX is for " + to_string(*target) + ", this device is compute_" +
                                std::to_string(compute) + "; build it with -arch=compute_" +
                                std::to_string(compute) + " or lower");
  }
  return std::string(text);
}

// Returns the fatbin that a wrapper points to. The runtime library registers fatbins in this form.
Bytes unwrap(Bytes image) {
  if (image.size() < wrapper_bytes) {
    fail(Reason::invalid, "the fatbin's wrapper is truncated");
  }
  const char* data = nullptr;
  std::memcpy(&data, image.data() + 8, sizeof data);
  if (data == nullptr) fail(Reason::invalid, "the fatbin's wrapper points to nothing");
  const Bytes header(reinterpret_cast<const std::byte*>(data), fatbin_header_bytes);
  if (format_of(data, fatbin_header_bytes) != Format::fatbin) {
    fail(Reason::invalid, "the fatbin's wrapper does not point to a fatbin");
  }
  return {header.data(), fatbin_size(header)};
}

void set_target(ImageEntry& entry, Target target) {
  entry.compute_capability = target.capability;
  entry.variant = target.variant;
}

// `what` names the text in the error.
void add_ptx(ImageEntry& entry, std::string_view text, const std::string& what,
             Allowances& allowances) {
  text = text.substr(0, text.find('\0'));
  const auto target = find_target(text);
  if (!target) fail(Reason::invalid, what + ": '.version' and '.target sm_NN' must stand first");
  PtxContent content = scan_ptx(text, allowances);
  entry.kind = CodeKind::ptx;
  set_target(entry, *target);
  entry.ptx_version = std::move(content.version);
  entry.is_64_bit = content.is_64_bit;
  entry.kernels = std::move(content.kernels);
  entry.variables = std::move(content.variables);
}

void add_cubin(ImageEntry& entry, Bytes code, Allowances& allowances) {
  Cubin cubin = read_cubin(code, allowances);
  entry.kind = CodeKind::machine_code;
  set_target(entry, cubin.target);
  entry.is_64_bit = cubin.is_64_bit;
  entry.is_relocatable = cubin.is_relocatable;
  entry.kernels = std::move(cubin.kernels);
  entry.variables = std::move(cubin.variables);
}

KernelImage describe_text(Bytes image) {
  const std::string_view text = text_of(image);
  ImageEntry entry{.bytes = text.size(), .unpacked_bytes = text.size()};
  Allowances allowances;
  add_ptx(entry, text, "the image begins like text but is not PTX", allowances);
  return {ImageKind::ptx, text.size(), {std::move(entry)}};
}

KernelImage describe_cubin(Bytes image) {
  ImageEntry entry;
  Allowances allowances;
  add_cubin(entry, image, allowances);  // which checks that the header is there
  entry.bytes = entry.unpacked_bytes = cubin_size(image);
  return {ImageKind::cubin, entry.bytes, {entry}};
}

// Describes an entry. Its unpacked code is held only while it is read, and the allowances bound the
// sum of all unpacked bytes.
ImageEntry describe_entry(const FatbinEntry& from, Allowances& allowances) {
  ImageEntry entry{.compression = from.packing, .bytes = from.payload.size()};
  entry.is_64_bit = from.is_64_bit;
  entry.unpacked_bytes =
      from.packing == Compression::none ? from.payload.size() : from.unpacked_size;
  entry.name = from.name.substr(0, from.name.find('\0'));
  set_target(entry, from.target);
  if (from.kind == FatbinEntry::link_time) entry.kind = CodeKind::link_time;
  if (from.kind != FatbinEntry::ptx && from.kind != FatbinEntry::elf) return entry;
  const std::string code = unpack(from, allowances);
  if (from.kind == FatbinEntry::ptx) {
    add_ptx(entry, code, name_of(from) + " is corrupt", allowances);
    return entry;
  }
  try {
    add_cubin(entry, std::as_bytes(std::span(code.data(), code.size())), allowances);
  } catch (const ImageError& error) {
    fail(error.reason(), name_of(from) + ": " + error.what());
  }
  // The container knows of families, which the code itself does not say.
  if (entry.variant == '\0') entry.variant = from.target.variant;
  return entry;
}

KernelImage describe_fatbin(Bytes image) {
  const auto entries = read_fatbin(image);
  KernelImage result{ImageKind::fatbin, fatbin_size(image), {}};
  Allowances allowances;
  for (const FatbinEntry& entry : entries) {
    result.entries.push_back(describe_entry(entry, allowances));
  }
  return result;
}

KernelImage describe_linked(Bytes image) {
  const auto inputs = read_linked(image);
  KernelImage result{ImageKind::linked, linked_size(image), {}};
  Allowances allowances;
  for (const LinkedInput& input : inputs) {
    ImageEntry entry{.bytes = input.ptx.size(), .unpacked_bytes = input.ptx.size()};
    entry.name = input.name;
    add_ptx(entry, input.ptx, "input '" + input.name + "' of the linked image is corrupt",
            allowances);
    result.entries.push_back(std::move(entry));
  }
  return result;
}

}  // namespace

Format format_of(const char* image, std::size_t size) noexcept {
  if (size == 0) return Format::unknown;
  if (begins_text(*image)) return Format::text;
  if (begins_with(image, size, fatbin_magic)) return Format::fatbin;
  if (begins_with(image, size, wrapper_magic)) return Format::wrapper;
  if (begins_with(image, size, elf_magic)) return Format::elf;
  return begins_with(image, size, linked_magic) ? Format::linked : Format::unknown;
}

void fail_unknown() {
  fail(
      Reason::invalid,
      "the image is neither PTX text nor a fatbin nor a cubin: its first bytes are none of theirs");
}

std::uint32_t checksum_of(std::span<const std::byte> bytes) noexcept {
  boost::crc_optimal<32, 0x04C11DB7, 0, 0xFFFFFFFF, false, false> sum;
  sum.process_bytes(bytes.data(), bytes.size());
  // POSIX appends the length, in as few bytes as it needs.
  for (std::size_t count = bytes.size(); count != 0; count >>= 8U) {
    sum.process_byte(static_cast<unsigned char>(count & 0xFFU));
  }
  return sum.checksum();
}

std::size_t image_size(const void* image) {
  if (image == nullptr) fail(Reason::invalid, "the image is a null pointer");
  const auto* text = static_cast<const char*>(image);
  const auto* bytes = static_cast<const std::byte*>(image);
  switch (format_of(text, std::numeric_limits<std::size_t>::max())) {
    case Format::text:
      return std::strlen(text);
    case Format::fatbin:
      return fatbin_size({bytes, fatbin_header_bytes});
    case Format::wrapper:
      return wrapper_bytes;
    case Format::elf:
      return cubin_size({bytes, elf_header_bytes});
    case Format::linked:
      return linked_size({bytes, linked_header_bytes});
    case Format::unknown:
      break;
  }
  fail_unknown();
}

std::string extract_ptx(Bytes image, int compute) {
  switch (format_of(image)) {
    case Format::text:
      return extract_from_text(image, compute);
    case Format::fatbin:
      return extract_from_fatbin(image, compute);
    case Format::wrapper:
      return extract_from_fatbin(unwrap(image), compute);
    case Format::elf:
      fail_elf(image, compute);
    case Format::linked:
      fail(Reason::invalid,
           "the image is linked from several texts of PTX, so it is not a single text");
    case Format::unknown:
      break;
  }
  fail_unknown();
}

KernelImage describe(Bytes image) {
  switch (format_of(image)) {
    case Format::text:
      return describe_text(image);
    case Format::fatbin:
      return describe_fatbin(image);
    case Format::elf:
      return describe_cubin(image);
    case Format::linked:
      return describe_linked(image);
    case Format::wrapper:
      fail(Reason::invalid,
           "the image is a wrapper, as the CUDA runtime registers them: it only points to a "
           "fatbin; give the fatbin itself");
    case Format::unknown:
      break;
  }
  fail_unknown();
}

}  // namespace ctxbroker::image
