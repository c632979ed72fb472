// SPDX-License-Identifier: Apache-2.0
#include "elf_file.hpp"

#include <optional>
#include <span>
#include <sstream>

#include "image/elf.hpp"
#include "limits/limits.hpp"
#include "observe/regular_file.hpp"
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

template <typename Part>
Part inside(const std::optional<Part>& part) {
  if (!part) damaged();
  return *part;
}

std::string text_at(const image::ElfInMemory& file, std::uint64_t offset) {
  return std::string(inside(file.text(offset)));
}

std::uint64_t offset_of(const image::ElfInMemory& file, std::uint64_t address) {
  const auto header = inside(file.header());
  for (std::uint32_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = inside(file.segment(header, i));
    if (segment.p_type == PT_LOAD && segment.p_vaddr <= address &&
        address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  damaged();
}

}  // namespace

ElfFile::ElfFile(const std::filesystem::path& path) {
  detail::FileReading file = detail::read_regular_file(path, limits::image_bytes.most);
  if (!file.trouble.empty()) throw Failed(path.string() + " " + file.trouble);
  bytes_.assign(file.bytes.begin(), file.bytes.end());
  const image::ElfInMemory elf(std::as_bytes(std::span(bytes_)));
  const auto header = elf.header();
  if (!header) throw Failed("it is no ELF file, so no loader takes it for a shared library");
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != this_machine) {
    throw Failed("it is made for another kind of machine (ELF machine " +
                 std::to_string(header->e_machine) + ")");
  }
  if (header->e_type != ET_DYN) throw Failed("it is an ELF file, but no shared library");
  read_segments(elf);
  read_exports(elf);
}

void ElfFile::read_segments(const image::ElfInMemory& file) {
  const auto header = inside(file.header());
  for (std::uint32_t i = 0; i < header.e_phnum; ++i) {
    const auto segment = inside(file.segment(header, i));
    const bool writable = (segment.p_flags & PF_W) != 0, code = (segment.p_flags & PF_X) != 0;
    if (segment.p_type == PT_GNU_STACK) executable_stack_ = code;
    if (segment.p_type == PT_LOAD && writable && code) writable_code_ = true;
    if (segment.p_type == PT_DYNAMIC) read_dynamic(file, segment.p_offset, segment.p_filesz);
  }
}

void ElfFile::read_dynamic(const image::ElfInMemory& file, std::uint64_t offset,
                           std::uint64_t bytes) {
  std::vector<std::uint64_t> needed, paths;
  std::uint64_t strings = 0;
  for (std::uint64_t at = 0; at + sizeof(Elf64_Dyn) <= bytes; at += sizeof(Elf64_Dyn)) {
    const auto entry = inside(file.read<Elf64_Dyn>(offset + at));
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_NEEDED) needed.push_back(entry.d_un.d_val);
    if (entry.d_tag == DT_RPATH || entry.d_tag == DT_RUNPATH) paths.push_back(entry.d_un.d_val);
    if (entry.d_tag == DT_STRTAB) strings = offset_of(file, entry.d_un.d_ptr);
    if (entry.d_tag == DT_TEXTREL) text_relocations_ = true;
    if (entry.d_tag == DT_FLAGS && (entry.d_un.d_val & DF_TEXTREL) != 0) text_relocations_ = true;
  }
  for (const std::uint64_t at : needed) needed_.push_back(text_at(file, strings + at));
  for (const std::uint64_t at : paths) {
    std::stringstream path(text_at(file, strings + at) + ":");
    for (std::string folder; std::getline(path, folder, ':');) run_path_.push_back(folder);
  }
}

void ElfFile::read_exports(const image::ElfInMemory& file) {
  const auto header = inside(file.header());
  for (std::uint32_t i = 0; i < header.e_shnum; ++i) {
    const auto section = inside(file.section(header, i));
    if (section.sh_type != SHT_DYNSYM) continue;
    const auto strings = inside(file.section(header, section.sh_link));
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = inside(file.read<Elf64_Sym>(section.sh_offset + at));
      const auto visibility = ELF64_ST_VISIBILITY(symbol.st_other);
      const auto binding = ELF64_ST_BIND(symbol.st_info);
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx == SHN_ABS || binding == STB_LOCAL ||
          (visibility != STV_DEFAULT && visibility != STV_PROTECTED)) {
        continue;
      }
      exports_.push_back({text_at(file, strings.sh_offset + symbol.st_name),
                          ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT});
    }
  }
}

}  // namespace ctxbroker::validate
