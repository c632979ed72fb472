#include "gate/import_patch.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {
namespace {

using Word = std::uintptr_t;

#if defined(__aarch64__)
constexpr unsigned jump_slot = R_AARCH64_JUMP_SLOT, got_entry = R_AARCH64_GLOB_DAT;
constexpr unsigned data_word = R_AARCH64_ABS64;
#elif defined(__x86_64__)
constexpr unsigned jump_slot = R_X86_64_JUMP_SLOT, got_entry = R_X86_64_GLOB_DAT;
constexpr unsigned data_word = R_X86_64_64;
#else
constexpr unsigned jump_slot = ~0U, got_entry = ~0U, data_word = ~0U;  // this processor has no gate
#endif

// The pages that the loader made read-only after it filled them in, rounded as the loader does.
// They are writable from the first slot that has to be changed until this object ends.
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

// Sanitizers must not watch these: the memory is another library's, and its threads may use it.
__attribute__((no_sanitize("address", "thread"))) Word read(const Word* at) noexcept {
  return __atomic_load_n(at, __ATOMIC_RELAXED);
}
__attribute__((no_sanitize("address", "thread"))) bool exchange(Word* at, Word of,
                                                                Word by) noexcept {
  return __atomic_compare_exchange_n(at, &of, by, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
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

unsigned type_of(const ElfW(Rela) & relocation) noexcept {
  return static_cast<unsigned>(ELF64_R_TYPE(relocation.r_info));
}

bool is_import(const ElfW(Rela) & relocation) noexcept {
  const unsigned type = type_of(relocation);
  return ELF64_R_SYM(relocation.r_info) != 0 && relocation.r_addend == 0 &&
         (type == jump_slot || type == got_entry || type == data_word);
}

// A word of initialised data may have been given another value since, and a library of the tenant's
// own may stand in for the driver: both stay as they are.
bool is_to_be_changed(const Import& import, unsigned type, Word now, const Extent& own) noexcept {
  if (now == 0 || now == import.by) return false;
  if (type == data_word) return now == import.of;
  if (import.of == 0 || now == import.of) return true;
  // The loader binds it at the first call: until then it leads into the library itself.
  return type == jump_slot && own.begin <= now && now < own.end;
}

const Import* find(std::span<const Import> imports, std::string_view name) noexcept {
  const auto found = std::lower_bound(
      imports.begin(), imports.end(), name,
      [](const Import& one, std::string_view wanted) { return one.name < wanted; });
  return found != imports.end() && found->name == name ? &*found : nullptr;
}

}  // namespace

PatchResult patch_imports(const dl_phdr_info& object, std::span<const Import> imports) noexcept {
  PatchResult result;
  const Dynamic tables = read_dynamic(object);
  if (tables.symbols == nullptr || tables.names == nullptr) return result;
  const Extent own = extent_of(object);
  ReadOnlyPart part(object);
  for (const auto relocations : tables.relocations) {
    for (const ElfW(Rela) & relocation : relocations) {
      if (!is_import(relocation)) continue;
      const ElfW(Sym)& symbol = tables.symbols[ELF64_R_SYM(relocation.r_info)];
      if (symbol.st_shndx != SHN_UNDEF) continue;
      const Import* const import = find(imports, tables.names + symbol.st_name);
      if (import == nullptr) continue;
      auto* const slot = reinterpret_cast<Word*>(object.dlpi_addr + relocation.r_offset);
      const Word now = read(slot);
      if (!is_to_be_changed(*import, type_of(relocation), now, own)) continue;
      if (!part.make_writable(reinterpret_cast<Word>(slot))) {
        ++result.refused;
      } else if (exchange(slot, now, import->by)) {
        ++result.changed;
      }
    }
  }
  return result;
}

}  // namespace ctxbroker::detail
