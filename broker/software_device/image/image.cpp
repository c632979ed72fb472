#include "image/image.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <limits>
#include <string_view>

#include "image/bytes.hpp"
#include "image/fatbin.hpp"
#include "image/limits.hpp"
#include "image/target.hpp"

namespace ctxbroker::software::image {

namespace {

constexpr std::string_view elf_magic =
    "\x7F"
    "ELF";
constexpr std::size_t elf_header_bytes = 64;
constexpr std::uint16_t machine_cuda = 190;

enum class Format : std::uint8_t { text, fatbin, wrapper, elf, unknown };

// PTX text begins with a blank, a comment or a directive.
bool begins_text(char c) noexcept {
  return c == '.' || c == '/' || c == '#' || std::isspace(static_cast<unsigned char>(c)) != 0;
}

// Byte by byte: where the size is not known, nothing beyond the first difference may be read.
bool begins_with(const char* image, std::size_t size, std::string_view magic) noexcept {
  if (size < magic.size()) return false;
  for (std::size_t i = 0; i < magic.size(); ++i) {
    if (image[i] != magic[i]) return false;
  }
  return true;
}

Format format_of(const char* image, std::size_t size) noexcept {
  if (size == 0) return Format::unknown;
  if (begins_text(*image)) return Format::text;
  if (begins_with(image, size, fatbin_magic)) return Format::fatbin;
  if (begins_with(image, size, wrapper_magic)) return Format::wrapper;
  return begins_with(image, size, elf_magic) ? Format::elf : Format::unknown;
}

[[noreturn]] void fail_unknown() {
  fail(
      Reason::invalid,
      "the image is neither PTX text nor a fatbin nor a cubin: its first bytes are none of theirs");
}

// Up to the end of the later of the two header tables, which stand behind everything else.
std::uint64_t elf_size(Bytes header) {
  const auto end_of = [&](std::size_t offset_at, std::size_t entry_size_at, std::size_t count_at) {
    const auto offset = read<std::uint64_t>(header, offset_at);
    if (offset > limits::image_bytes) {
      fail(Reason::invalid,
           "the cubin is corrupt or absurdly large: a table of its stands at byte " +
               std::to_string(offset));
    }
    return offset + std::uint64_t{read<std::uint16_t>(header, entry_size_at)} *
                        read<std::uint16_t>(header, count_at);
  };
  return std::max({std::uint64_t{elf_header_bytes}, end_of(32, 54, 56), end_of(40, 58, 60)});
}

[[noreturn]] void fail_elf(Bytes image) {
  if (image.size() < elf_header_bytes) {
    fail(Reason::invalid, "the cubin is truncated: " + std::to_string(image.size()) +
                              " bytes are less than its header");
  }
  if (read<std::uint16_t>(image, 18) != machine_cuda) {
    fail(Reason::invalid, "the image is an ELF file, but not one with code for NVIDIA GPUs");
  }
  // Since ABI 8 (CUDA 13) the architecture stands one byte higher.
  const auto abi = read<std::uint8_t>(image, 8);
  const auto flags = read<std::uint32_t>(image, 48);
  const std::uint32_t arch = (abi >= 8 ? flags >> 8 : flags) & 0xFF;
  fail(Reason::no_ptx,
       "the image is a cubin, machine code for sm_" + std::to_string(arch) +
           " only, and the software device runs PTX; give it the PTX (nvcc -ptx) or "
           "a fatbin that holds PTX (-gencode arch=compute_NN,code=compute_NN)");
}

std::string extract_from_text(Bytes image, int compute) {
  std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  text = text.substr(0, text.find('\0'));
  if (text.size() > limits::ptx_bytes) {
    fail(Reason::invalid, "the PTX text has " + std::to_string(text.size()) +
                              " bytes; the most is " + std::to_string(limits::ptx_bytes));
  }
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

// The fatbin that a wrapper points to: how the runtime's registration passes it.
Bytes unwrap(Bytes image) {
  if (image.size() < wrapper_bytes) {
    fail(Reason::invalid, "the fatbin's wrapper is truncated");
  }
  const char* data = nullptr;
  std::memcpy(&data, image.data() + 8, sizeof data);
  if (data == nullptr) fail(Reason::invalid, "the fatbin's wrapper points to nothing");
  const Bytes header(reinterpret_cast<const std::byte*>(data), fatbin_header_bytes);
  if (!begins_with(data, fatbin_header_bytes, fatbin_magic)) {
    fail(Reason::invalid, "the fatbin's wrapper does not point to a fatbin");
  }
  return {header.data(), fatbin_size(header)};
}

}  // namespace

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
      return elf_size({bytes, elf_header_bytes});
    case Format::unknown:
      break;
  }
  fail_unknown();
}

std::string extract_ptx(Bytes image, int compute) {
  switch (format_of(reinterpret_cast<const char*>(image.data()), image.size())) {
    case Format::text:
      return extract_from_text(image, compute);
    case Format::fatbin:
      return extract_from_fatbin(image, compute);
    case Format::wrapper:
      return extract_from_fatbin(unwrap(image), compute);
    case Format::elf:
      fail_elf(image);
    case Format::unknown:
      break;
  }
  fail_unknown();
}

}  // namespace ctxbroker::software::image
