// SPDX-License-Identifier: Apache-2.0
#include "plugin/build_id.hpp"

#include <cstdint>
#include <cstring>
#include <string_view>

#include "image/elf.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t most_notes = 65536;  // bytes of one segment
constexpr std::size_t longest_id = 64;       // bytes; SHA-1 has 20

std::uint64_t padded(std::uint64_t bytes) {
  return (bytes + 3) / 4 * 4;
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    text += digits[static_cast<unsigned char>(byte) >> 4];
    text += digits[static_cast<unsigned char>(byte) & 15U];
  }
  return text;
}

std::string find_id(std::string_view notes) {
  while (notes.size() >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr head{};
    std::memcpy(&head, notes.data(), sizeof head);
    notes.remove_prefix(sizeof head);
    const std::uint64_t name_bytes = padded(head.n_namesz);
    const std::uint64_t bytes = padded(head.n_descsz);
    if (name_bytes > notes.size() || bytes > notes.size() - name_bytes) return {};
    const std::string_view name = notes.substr(0, head.n_namesz);
    if (head.n_type == NT_GNU_BUILD_ID && name == std::string_view("GNU\0", 4)) {
      return head.n_descsz <= longest_id ? hexadecimal(notes.substr(name_bytes, head.n_descsz))
                                         : std::string();
    }
    notes.remove_prefix(name_bytes + bytes);
  }
  return {};
}

}  // namespace

std::string build_id(const std::filesystem::path& library) {
  const image::ElfOnDisk file(library);
  const auto head = file.header();
  if (!head || head->e_ident[EI_CLASS] != ELFCLASS64 || head->e_phentsize != sizeof(Elf64_Phdr)) {
    return {};
  }
  for (std::uint32_t index = 0; index < head->e_phnum; ++index) {
    const auto segment = file.segment(*head, index);
    if (!segment) return {};
    if (segment->p_type != PT_NOTE || segment->p_filesz > most_notes) continue;
    std::string notes(segment->p_filesz, '\0');
    if (!file.copy(segment->p_offset, notes.data(), notes.size())) continue;
    std::string id = find_id(notes);
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace ctxbroker::detail
