// SPDX-License-Identifier: Apache-2.0
#include "elf_file.hpp"

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "trial.hpp"

namespace ctxbroker::validate {
namespace {

#if defined(__aarch64__)
constexpr std::uint16_t this_machine = EM_AARCH64;
#else
constexpr std::uint16_t this_machine = EM_X86_64;
#endif

[[noreturn]] void damaged() {
  throw Failed("the file is damaged: a part of it lies outside of the file");
}

}  // namespace

template <typename Struct>
Struct ElfFile::read(std::uint64_t offset) const {
  if (offset > bytes_.size() || bytes_.size() - offset < sizeof(Struct)) damaged();
  Struct made{};
  std::memcpy(&made, bytes_.data() + offset, sizeof made);
  return made;
}

std::string ElfFile::text_at(std::uint64_t offset) const {
  if (offset >= bytes_.size()) damaged();
  const char* const begin = bytes_.data() + offset;
  const void* const end = std::memchr(begin, 0, bytes_.size() - offset);
  if (end == nullptr) damaged();
  return {begin, static_cast<const char*>(end)};
}

ElfFile::ElfFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  bytes_.assign(std::istreambuf_iterator<char>(file), {});
  if (bytes_.size() < sizeof(Elf64_Ehdr) || std::memcmp(bytes_.data(), ELFMAG, SELFMAG) != 0) {
    throw Failed("it is no ELF file, so no loader takes it for a shared library");
  }
  const auto header = read<Elf64_Ehdr>(0);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != this_machine) {
    throw Failed("it is made for another kind of machine (ELF machine " +
                 std::to_string(header.e_machine) + ")");
  }
  if (header.e_type != ET_DYN) throw Failed("it is an ELF file, but no shared library");
  read_segments();
  read_exports();
}

void ElfFile::read_segments() {
  const auto header = read<Elf64_Ehdr>(0);
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = read<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    const bool writable = (segment.p_flags & PF_W) != 0, code = (segment.p_flags & PF_X) != 0;
    if (segment.p_type == PT_GNU_STACK) executable_stack_ = code;
    if (segment.p_type == PT_LOAD && writable && code) writable_code_ = true;
    if (segment.p_type == PT_DYNAMIC) read_dynamic(segment.p_offset, segment.p_filesz);
  }
}

std::uint64_t ElfFile::offset_of(std::uint64_t address) const {
  const auto header = read<Elf64_Ehdr>(0);
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = read<Elf64_Phdr>(header.e_phoff + i * sizeof(Elf64_Phdr));
    if (segment.p_type == PT_LOAD && segment.p_vaddr <= address &&
        address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  damaged();
}

void ElfFile::read_dynamic(std::uint64_t offset, std::uint64_t bytes) {
  std::vector<std::uint64_t> needed, paths;
  std::uint64_t strings = 0;
  for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= bytes; at += sizeof(Elf64_Dyn)) {
    const auto entry = read<Elf64_Dyn>(offset + at);
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_NEEDED) needed.push_back(entry.d_un.d_val);
    if (entry.d_tag == DT_RPATH || entry.d_tag == DT_RUNPATH) paths.push_back(entry.d_un.d_val);
    if (entry.d_tag == DT_STRTAB) strings = offset_of(entry.d_un.d_ptr);
    if (entry.d_tag == DT_TEXTREL) text_relocations_ = true;
    if (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_TEXTREL) != 0) text_relocations_ = true;
  }
  for (const std::uint64_t at : needed) needed_.push_back(text_at(strings + at));
  for (const std::uint64_t at : paths) {
    std::stringstream path(text_at(strings + at) + ":");
    for (std::string folder; std::getline(path, folder, ':');) run_path_.push_back(folder);
  }
}

void ElfFile::read_exports() {
  const auto header = read<Elf64_Ehdr>(0);
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto section = read<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_DYNSYM) continue;
    const auto strings = read<Elf64_Shdr>(header.e_shoff + section.sh_link * sizeof(Elf64_Shdr));
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read<Elf64_Sym>(section.sh_offset + at);
      const auto visibility = ELF64_ST_VISIBILITY(symbol.st_other);
      const auto binding = ELF64_ST_BIND(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || binding == STB_LOCAL ||
          (visibility != STV_DEFAULT && visibility != STV_PROTECTED)) {
        continue;
      }
      exports_.push_back({text_at(strings.sh_offset + symbol.st_name),
                          ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT});
    }
  }
}

}  // namespace ctxbroker::validate
