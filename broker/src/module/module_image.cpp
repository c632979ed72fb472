#include "module/module_image.hpp"

#include <elf.h>

#include <cstdint>
#include <cstring>

#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uint32_t fatbin_magic = 0xBA55ED50;

struct FatbinHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint64_t content_bytes;
};

template <typename Header>
bool read(const ModuleImage& image, Header& header) {
  if (image.size < sizeof header) return false;
  std::memcpy(&header, image.data, sizeof header);
  return true;
}

[[noreturn]] void refuse(const ModuleImage& image, const std::string& why) {
  throw Error(ErrorKind::kernel_image, "module \"" + image.name + "\" " + why +
                                           "; its descriptor gives it " +
                                           std::to_string(image.size) + " bytes");
}

void check_fatbin(const ModuleImage& image) {
  FatbinHeader header{};
  if (!read(image, header)) refuse(image, "is a fatbin cut off in its header");
  if (header.content_bytes > image.size ||
      header.header_bytes > image.size - header.content_bytes) {
    refuse(image, "is a fatbin cut off before its end");
  }
}

// True when `count` entries of `each` bytes at `offset` are inside.
bool inside(const ModuleImage& image, std::uint64_t offset, std::uint64_t count,
            std::uint64_t each) {
  return offset <= image.size && count * each <= image.size - offset;  // both are 16 bits wide
}

void check_elf(const ModuleImage& image) {
  Elf64_Ehdr header{};
  if (!read(image, header)) refuse(image, "is an ELF file cut off in its header");
  if (!inside(image, header.e_shoff, header.e_shnum, header.e_shentsize) ||
      !inside(image, header.e_phoff, header.e_phnum, header.e_phentsize)) {
    refuse(image, "is an ELF file cut off before its end");
  }
  for (std::uint64_t index = 0; index < header.e_shnum; ++index) {
    if (header.e_shentsize < sizeof(Elf64_Shdr)) refuse(image, "is an ELF file with odd sections");
    Elf64_Shdr section{};
    std::memcpy(&section, image.data + header.e_shoff + index * header.e_shentsize, sizeof section);
    if (section.sh_type != SHT_NOBITS && !inside(image, section.sh_offset, 0, 0)) {
      refuse(image, "is an ELF file with a section beyond its end");
    }
    if (section.sh_type != SHT_NOBITS && section.sh_size > image.size - section.sh_offset) {
      refuse(image, "is an ELF file with a section beyond its end");
    }
  }
}

}  // namespace

std::vector<std::byte> checked_copy(const ModuleImage& image) {
  std::uint32_t magic = 0;
  if (read(image, magic)) {
    if (magic == fatbin_magic) check_fatbin(image);
    if (std::memcmp(&magic, ELFMAG, SELFMAG) == 0) check_elf(image);
  }
  std::vector<std::byte> copy(image.size + 1);  // a vector's memory is aligned to 16 bytes
  std::memcpy(copy.data(), image.data, image.size);
  return copy;
}

}  // namespace ctxbroker::detail
