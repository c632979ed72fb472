#include "gate/object_patch.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace ctxbroker::detail {
namespace {

using Word = std::uintptr_t;

#if defined(__aarch64__)
constexpr unsigned import_types[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT};
#elif defined(__x86_64__)
constexpr unsigned import_types[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT};
#else
constexpr unsigned import_types[] = {~0U};  // there is no gate for this processor
#endif

const Replacement* find(const Replacements& words, Word word) noexcept {
  const auto found =
      std::lower_bound(words.begin(), words.end(), word,
                       [](const Replacement& one, Word wanted) { return one.of < wanted; });
  return found != words.end() && found->of == word ? &*found : nullptr;
}

// What the loader has made read-only after it filled it in, as the loader rounds it. Writable from
// the first word that is to be changed until the end of this.
class ReadOnlyPart {
 public:
  explicit ReadOnlyPart(const dl_phdr_info& object) noexcept {
    const auto page = static_cast<Word>(sysconf(_SC_PAGESIZE));
    for (const ElfW(Phdr) & part : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
      if (part.p_type != PT_GNU_RELRO) continue;
      const Word at = object.dlpi_addr + part.p_vaddr;
      begin_ = at / page * page;
      end_ = (at + part.p_memsz) / page * page;
    }
  }
  ~ReadOnlyPart() {
    if (open_) protect(PROT_READ);
  }
  ReadOnlyPart(const ReadOnlyPart&) = delete;
  ReadOnlyPart& operator=(const ReadOnlyPart&) = delete;

  bool make_writable(Word address) noexcept {
    if (address < begin_ || address >= end_ || open_) return true;
    open_ = protect(PROT_READ | PROT_WRITE);
    return open_;
  }

 private:
  bool protect(int access) const noexcept {
    return mprotect(reinterpret_cast<void*>(begin_), end_ - begin_, access) == 0;
  }
  Word begin_ = 0, end_ = 0;
  bool open_ = false;
};

// Another library's memory, also what sanitizers have fenced off, and what its threads write.
__attribute__((no_sanitize("address", "thread"))) Word read(const Word* at) noexcept {
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}
__attribute__((no_sanitize("address", "thread"))) bool exchange(Word* at, Word of,
                                                                Word by) noexcept {
  return __atomic_compare_exchange_n(at, &of, by, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

// visit(word, its replacement) for each word in the segments that may be written to.
template <typename Visit>
void for_each_word(const dl_phdr_info& object, const Replacements& words, Visit&& visit) noexcept {
  if (words.empty()) return;
  // Nearly every word is none of them, and there may be hundreds of megabytes.
  const Word lowest = words.front().of, range = words.back().of - lowest;
  for (const ElfW(Phdr) & part : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
    const Word first = object.dlpi_addr + part.p_vaddr, end = first + part.p_memsz;
    for (Word at = (first + sizeof(Word) - 1) / sizeof(Word) * sizeof(Word);
         at + sizeof(Word) <= end; at += sizeof(Word)) {
      auto* const word = reinterpret_cast<Word*>(at);
      const Word value = read(word);
      if (value - lowest > range) continue;
      if (const Replacement* one = find(words, value)) visit(word, *one);
    }
  }
}

void change(Word* at, Word of, Word by, ReadOnlyPart& part, std::size_t& done,
            std::size_t& refused) noexcept {
  if (!part.make_writable(reinterpret_cast<Word>(at))) {
    ++refused;
  } else if (exchange(at, of, by)) {
    ++done;
  }
}

// The tables that the loader works with.
struct Dynamic {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  std::span<const ElfW(Rela)> relocations[2];
};

Dynamic read_dynamic(const dl_phdr_info& object) noexcept {
  Dynamic tables;
  const ElfW(Dyn)* entry = nullptr;
  for (const ElfW(Phdr) & part : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
    if (part.p_type == PT_DYNAMIC) {
      entry = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + part.p_vaddr);
    }
  }
  if (entry == nullptr) return tables;
  const ElfW(Rela) * first[2] = {nullptr, nullptr};
  std::size_t bytes[2] = {0, 0};
  for (; entry->d_tag != DT_NULL; ++entry) {
    // The loader has made it an address, or on some systems left it an offset.
    const Word value = entry->d_un.d_ptr;
    const Word at = value < object.dlpi_addr ? object.dlpi_addr + value : value;
    switch (entry->d_tag) {
      case DT_SYMTAB:
        tables.symbols = reinterpret_cast<const ElfW(Sym)*>(at);
        break;
      case DT_STRTAB:
        tables.names = reinterpret_cast<const char*>(at);
        break;
      case DT_JMPREL:
        first[0] = reinterpret_cast<const ElfW(Rela)*>(at);
        break;
      case DT_PLTRELSZ:
        bytes[0] = value;
        break;
      case DT_RELA:
        first[1] = reinterpret_cast<const ElfW(Rela)*>(at);
        break;
      case DT_RELASZ:
        bytes[1] = value;
        break;
      default:
        break;
    }
  }
  for (int i = 0; i < 2; ++i) {
    if (first[i] != nullptr) tables.relocations[i] = {first[i], bytes[i] / sizeof(ElfW(Rela))};
  }
  return tables;
}

bool is_import(const ElfW(Rela) & relocation) noexcept {
  const auto type = static_cast<unsigned>(ELF64_R_TYPE(relocation.r_info));
  return ELF64_R_SYM(relocation.r_info) != 0 && relocation.r_addend == 0 &&
         std::find(std::begin(import_types), std::end(import_types), type) !=
             std::end(import_types);
}

void patch_imports(const dl_phdr_info& object, std::span<const ImportReplacement> imports,
                   ReadOnlyPart& part, PatchResult& result) noexcept {
  const Dynamic tables = read_dynamic(object);
  if (tables.symbols == nullptr || tables.names == nullptr) return;
  for (const auto relocations : tables.relocations) {
    for (const ElfW(Rela) & relocation : relocations) {
      if (!is_import(relocation)) continue;
      const ElfW(Sym)& symbol = tables.symbols[ELF64_R_SYM(relocation.r_info)];
      if (symbol.st_shndx != SHN_UNDEF) continue;
      const std::string_view name = tables.names + symbol.st_name;
      for (const ImportReplacement& import : imports) {
        if (name != import.name) continue;
        auto* const slot = reinterpret_cast<Word*>(object.dlpi_addr + relocation.r_offset);
        const Word now = read(slot);
        if (now != 0 && now != import.by) {
          change(slot, now, import.by, part, result.imports, result.refused);
        }
      }
    }
  }
}

}  // namespace

PatchResult patch_object(const dl_phdr_info& object, const Replacements& words,
                         std::span<const ImportReplacement> imports) noexcept {
  PatchResult result;
  ReadOnlyPart part(object);
  patch_imports(object, imports, part, result);
  for_each_word(object, words, [&](Word* word, const Replacement& one) {
    change(word, one.of, one.by, part, result.words, result.refused);
  });
  return result;
}

std::size_t count_words(const dl_phdr_info& object, const Replacements& words) noexcept {
  std::size_t count = 0;
  for_each_word(object, words, [&](const Word*, const Replacement&) { ++count; });
  return count;
}

}  // namespace ctxbroker::detail
