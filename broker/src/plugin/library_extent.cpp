#include "plugin/library_extent.hpp"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>

namespace ctxbroker::detail {
namespace {

template <typename Header>
bool read_at(std::istream& file, std::uint64_t offset, Header& header) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&header), sizeof header));
}

}  // namespace

std::optional<std::string> find_truncation(const std::filesystem::path& library) {
  std::ifstream file(library, std::ios::binary | std::ios::ate);
  if (!file) return std::nullopt;
  const auto size = static_cast<std::uint64_t>(file.tellg());
  Elf64_Ehdr head{};
  if (!read_at(file, 0, head)) return std::nullopt;
  if (std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64) {
    return std::nullopt;
  }
  for (std::uint64_t i = 0; i < head.e_phnum; ++i) {
    const std::uint64_t offset = head.e_phoff + i * head.e_phentsize;
    Elf64_Phdr segment{};
    if (offset > size || !read_at(file, offset, segment)) return "its program headers are cut off";
    if (segment.p_type != PT_LOAD) continue;
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) {
      return "a segment of " + std::to_string(segment.p_filesz) + " bytes at " +
             std::to_string(segment.p_offset) + " is cut off, the file ends at " +
             std::to_string(size);
    }
  }
  return std::nullopt;
}

}  // namespace ctxbroker::detail
