#include "image/image.hpp"

#include <cctype>
#include <cstring>
#include <limits>
#include <string_view>

#include "image/bytes.hpp"
#include "image/elf.hpp"
#include "image/fatbin.hpp"
#include "image/linked.hpp"
#include "image/target.hpp"

namespace ctxbroker::image {
namespace {

// PTX text begins with a blank, a comment or a directive.
bool begins_text(char c) noexcept {
  return c == '.' || c == '/' || c == '#' || std::isspace(static_cast<unsigned char>(c)) != 0;
}

bool begins_with(const char* image, std::size_t size, std::string_view magic) noexcept {
  if (size < magic.size()) return false;
  for (std::size_t i = 0; i < magic.size(); ++i) {
    if (image[i] != magic[i]) return false;
  }
  return true;
}

[[noreturn]] void fail_elf(Bytes image) {
  fail(Reason::no_ptx,
       "the image is a cubin, machine code for " + to_string(read_elf_target(image)) +
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
    case Format::linked:
      return linked_size({bytes, linked_header_bytes});
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
    case Format::linked:
      fail(Reason::invalid, "the image is linked from several texts of PTX: it is no one text");
    case Format::unknown:
      break;
  }
  fail_unknown();
}

}  // namespace ctxbroker::image
