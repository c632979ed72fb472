#include "image/format.hpp"

#include <cctype>
#include <string_view>

#include "image/elf.hpp"
#include "image/fatbin.hpp"
#include "image/linked.hpp"

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

}  // namespace ctxbroker::image
