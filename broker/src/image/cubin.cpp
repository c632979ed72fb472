// SPDX-License-Identifier: Apache-2.0
#include "image/cubin.hpp"

#include <algorithm>

#include "image/bytes.hpp"
#include "image/elf.hpp"

namespace ctxbroker::image {

namespace {

constexpr std::uint16_t machine_cuda = 190;
constexpr std::uint8_t new_flags_abi = 8;       // CUDA 13: the architecture one byte higher
constexpr std::uint8_t is_entry = 0x10;         // st_other of a kernel
constexpr unsigned char type_cuda_object = 13;  // st_info of a variable, beside STT_OBJECT

[[noreturn]] void fail_cubin(const std::string& why) {
  fail(Reason::invalid, "the cubin is truncated or corrupt: " + why);
}

Elf64_Ehdr read_header(Bytes image) {
  const auto found = ElfInMemory(image).read<Elf64_Ehdr>(0);
  if (!found) {
    fail(Reason::invalid, "the cubin is truncated: " + std::to_string(image.size()) +
                              " bytes are less than its header");
  }
  const Elf64_Ehdr& header = *found;
  if (header.e_machine != machine_cuda) {
    fail(Reason::invalid,
         "the image is an ELF file, but not one with code for NVIDIA GPUs; use the cubin or "
         "fatbin itself (nvcc -cubin, nvcc -fatbin), not a program or an object file that contains "
         "it");
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    fail_cubin("it is not a 64-bit little-endian ELF file");
  }
  return header;
}

class Sections {
 public:
  Sections(Bytes image, const Elf64_Ehdr& header) : elf_(image), header_(header) {
    if (header.e_shnum == 0) return;
    if (header.e_shentsize != sizeof(Elf64_Shdr)) fail_cubin("its section headers have odd sizes");
    part(header.e_shoff, std::uint64_t{header.e_shnum} * sizeof(Elf64_Shdr),
         "the table of its sections");
    if (header.e_shstrndx < count()) names_ = text_of(get(header.e_shstrndx));
  }

  std::uint32_t count() const noexcept { return header_.e_shnum; }
  Elf64_Shdr get(std::uint32_t index) const {
    return elf_.section(header_, index).value();  // the whole table lies inside
  }

  std::string_view name(const Elf64_Shdr& section) const {
    return name_at(names_, section.sh_name);
  }

  Bytes bytes(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS) return {};
    return part(section.sh_offset, section.sh_size, "a section");
  }

  std::string_view text_of(const Elf64_Shdr& section) const {
    const Bytes found = bytes(section);
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }

  static std::string_view name_at(std::string_view names, std::uint32_t offset) {
    if (offset >= names.size()) return {};
    names.remove_prefix(offset);
    return names.substr(0, std::min(names.find('\0'), names.size()));
  }

 private:
  Bytes part(std::uint64_t offset, std::uint64_t size, const char* what) const {
    const auto found = elf_.part(offset, size);
    if (!found) fail_cubin(std::string(what) + " lies beyond its end");
    return *found;
  }

  ElfInMemory elf_;
  Elf64_Ehdr header_;
  std::string_view names_;
};

// .nv.compat: records of {form, attribute, 16-bit value}, the fourth form with that many bytes
// more. Attribute 9 says whether the code is for its architecture alone.
bool is_architecture_specific(Bytes records) noexcept {
  constexpr std::uint8_t sized_form = 4, value_form = 2, isa_class = 9;
  while (records.size() >= 4) {
    const auto form = read<std::uint8_t>(records, 0);
    const auto attribute = read<std::uint8_t>(records, 1);
    const auto value = read<std::uint16_t>(records, 2);
    if (form == value_form && attribute == isa_class) return value == 1;
    const std::size_t size = 4 + (form == sized_form ? value : std::size_t{0});
    if (size > records.size()) return false;
    records = records.subspan(size);
  }
  return false;
}

enum class Memory : std::uint8_t { other, device, constant };

Memory memory_of(std::string_view section) noexcept {
  if (section == ".nv.constant3") return Memory::constant;
  return section.starts_with(".nv.global") ? Memory::device : Memory::other;
}

void read_symbols(const Sections& sections, const Elf64_Shdr& table, Cubin& cubin,
                  Allowances& allowances) {
  if (table.sh_link >= sections.count()) fail_cubin("its symbols have no names");
  const std::string_view names = sections.text_of(sections.get(table.sh_link));
  const Bytes symbols = sections.bytes(table);
  for (std::size_t i = 0; i < symbols.size() / sizeof(Elf64_Sym); ++i) {
    const auto symbol = read<Elf64_Sym>(symbols, i * sizeof(Elf64_Sym));
    const bool is_defined = symbol.st_shndx != SHN_UNDEF && symbol.st_shndx < sections.count();
    const std::string_view name =
        is_defined ? Sections::name_at(names, symbol.st_name) : std::string_view();
    allowances.take_name(name.size());  // many symbols can share one long name
    if (name.empty()) continue;
    const unsigned char type = ELF64_ST_TYPE(symbol.st_info);
    if (type == STT_FUNC && (symbol.st_other & is_entry) != 0) cubin.kernels.emplace_back(name);
    if (type != STT_OBJECT && type != type_cuda_object) continue;
    const Memory memory = memory_of(sections.name(sections.get(symbol.st_shndx)));
    if (memory == Memory::other) continue;
    cubin.variables.push_back({std::string(name), symbol.st_size, memory == Memory::constant});
  }
}

}  // namespace

std::uint64_t cubin_size(Bytes image) {
  const auto header = read<Elf64_Ehdr>(image, 0);
  const auto end_of = [](std::uint64_t offset, std::uint64_t entry_size, std::uint64_t count) {
    if (offset > limits::image_bytes.most) {
      fail(Reason::invalid, "the cubin is corrupt: a table of its stands at byte " +
                                std::to_string(offset) + "; the limit image_bytes is " +
                                std::to_string(limits::image_bytes.most));
    }
    return offset + entry_size * count;
  };
  return std::max({std::uint64_t{elf_header_bytes},
                   end_of(header.e_phoff, header.e_phentsize, header.e_phnum),
                   end_of(header.e_shoff, header.e_shentsize, header.e_shnum)});
}

Target read_cubin_target(Bytes image) {
  const Elf64_Ehdr header = read_header(image);
  const bool is_new = header.e_ident[EI_ABIVERSION] >= new_flags_abi;
  return {static_cast<int>((is_new ? header.e_flags >> 8 : header.e_flags) & 0xFF), '\0'};
}

Cubin read_cubin(Bytes image, Allowances& allowances) {
  Cubin cubin;
  cubin.target = read_cubin_target(image);
  const Elf64_Ehdr header = read_header(image);
  if (cubin_size(image) > image.size()) {
    fail_cubin("it says it has " + std::to_string(cubin_size(image)) + " bytes, " +
               std::to_string(image.size()) + " are there");
  }
  const bool is_new = header.e_ident[EI_ABIVERSION] >= new_flags_abi;
  cubin.is_64_bit = (header.e_flags & (is_new ? 0x4U : 0x400U)) != 0;
  cubin.is_relocatable = header.e_type == ET_REL;
  const Sections sections(image, header);
  for (std::uint32_t i = 0; i < sections.count(); ++i) {
    const Elf64_Shdr section = sections.get(i);
    const Bytes bytes = sections.bytes(section);  // checked to lie inside, whatever it is
    if (section.sh_type == SHT_SYMTAB) read_symbols(sections, section, cubin, allowances);
    if (sections.name(section) == ".nv.compat" && is_architecture_specific(bytes)) {
      cubin.target.variant = 'a';
    }
  }
  return cubin;
}

}  // namespace ctxbroker::image
