// SPDX-License-Identifier: Apache-2.0
#include "gate/tenant_imports.hpp"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "driver/driver_file.hpp"
#include "gate/code_map.hpp"
#include "gate/dynamic_tables.hpp"
#include "gate/loaded_objects.hpp"
#include "gate/loader_exception.hpp"

namespace ctxbroker::detail {
namespace {

using Word = std::uintptr_t;

// A function that libraries import by name.
struct Import {
  std::string_view name;
  std::uintptr_t of = 0;  // the address that is replaced; 0: whatever the loader found
  std::uintptr_t by = 0;  // the address that replaces it
};

struct PatchResult {
  std::size_t changed = 0;
  std::size_t refused = 0;  // the system let nobody write there
};

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

// A word of initialised data may have been given another value since, and a library of the tenant's
// own may stand in for the driver: both stay as they are.
bool is_to_be_changed(const Import& import, unsigned type, Word now, const Extent& own) noexcept {
  if (now == 0 || now == import.by) return false;
  if (type == data_word) return now == import.of;
  if (import.of == 0 || now == import.of) return true;
  // The loader binds it at the first call: until then it leads into the library itself.
  return type == jump_slot && is_in(own, now);
}

const Import* find(std::span<const Import> imports, std::string_view name) noexcept {
  const auto found = std::lower_bound(
      imports.begin(), imports.end(), name,
      [](const Import& one, std::string_view wanted) { return one.name < wanted; });
  return found != imports.end() && found->name == name ? &*found : nullptr;
}

// Changes the slots that the loader filled in for these imports; `imports` is sorted by name. Reads
// the library's tables of relocations, and no other data of it. Each slot is written in one piece,
// and only while it still holds what is to be replaced, so threads may run in the library
// meanwhile. Where the loader has made the slots read-only (RELRO), they are writable until this
// returns. Call it while the loader lets no library go (in dl_iterate_phdr), one thread at a time.
PatchResult patch_imports(const dl_phdr_info& object, std::span<const Import> imports) noexcept {
  PatchResult result;
  const DynamicTables tables = dynamic_tables_of(object);
  if (tables.symbols == nullptr || tables.names == nullptr) return result;
  const Extent own = extent_of(object);
  ReadOnlyPart part(object);
  for (const auto relocations : tables.relocations) {
    for (const ElfW(Rela) & relocation : relocations) {
      if (!fills_with_symbol(relocation)) continue;
      const ElfW(Sym)& symbol = symbol_of(tables, relocation);
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

struct Led {
  bool late = false;
  const void* driver = nullptr;  // its cuInit
  std::vector<Import> imports;   // by name
};
std::atomic<const Led*> led{nullptr};  // set once, and never freed

std::uintptr_t address_of(ctxb_gate_function function) noexcept {
  return reinterpret_cast<std::uintptr_t>(function);
}

struct Patch {
  std::vector<Extent> code;  // the tenant's
  const std::vector<Import>& imports;
  PatchResult result{};
};

int patch_if_of_tenant(dl_phdr_info* object, std::size_t, void* given) noexcept {
  Patch& patch = *static_cast<Patch*>(given);
  if (std::find(patch.code.begin(), patch.code.end(), extent_of(*object)) != patch.code.end()) {
    const PatchResult one = patch_imports(*object, patch.imports);
    patch.result.changed += one.changed;
    patch.result.refused += one.refused;
  }
  return 0;
}

// A library that was led before has nothing left to be changed.
void lead_imports_of(GatedTenant& tenant, const Led& all) noexcept {
  try {
    Patch patch{code_of(tenant), all.imports};
    dl_iterate_phdr(patch_if_of_tenant, &patch);  // one thread at a time, in glibc
    if (patch.result.changed != 0 && all.late) {
      tenant.identity().log(Severity::info, "gate",
                            "led " + std::to_string(patch.result.changed) +
                                " imports of the tenant's libraries to the gate, which came after "
                                "the driver");
    }
    if (patch.result.refused != 0) {
      tenant.identity().log(Severity::warning, "gate",
                            std::to_string(patch.result.refused) +
                                " imports of the tenant's libraries lead past the gate: the system "
                                "lets nobody write there");
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: they lead where they did
  }
}

struct KeptCount {
  const std::vector<Extent>& code;
  std::vector<Word> functions;  // sorted
  std::size_t kept;
};

// By way of the system, because a library may have made parts of its data unreadable.
int count_kept(dl_phdr_info* object, std::size_t, void* given) noexcept {
  KeptCount& count = *static_cast<KeptCount*>(given);
  if (std::find(count.code.begin(), count.code.end(), extent_of(*object)) == count.code.end()) {
    return 0;
  }
  constexpr std::size_t most = 512;  // words at a time: a page
  Word words[most];
  for (const ElfW(Phdr) & part : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
    if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
    const Word end = object->dlpi_addr + part.p_vaddr + part.p_memsz;
    Word at = (object->dlpi_addr + part.p_vaddr + sizeof(Word) - 1) / sizeof(Word) * sizeof(Word);
    while (at + sizeof(Word) <= end) {
      // To the end of a page, so that one unreadable page costs no other.
      const std::size_t room = sizeof words - at % sizeof words;
      const std::size_t bytes =
          std::min<std::size_t>(room, (end - at) / sizeof(Word) * sizeof(Word));
      const iovec to{words, bytes}, from{reinterpret_cast<void*>(at), bytes};
      const ssize_t got = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
      for (std::size_t i = 0; got > 0 && i < static_cast<std::size_t>(got) / sizeof(Word); ++i) {
        count.kept += std::binary_search(count.functions.begin(), count.functions.end(), words[i]);
      }
      at += bytes;
    }
  }
  return 0;
}

const void* before_return(const void* caller) noexcept {
  return static_cast<const char*>(caller) - 1;
}

// The gate's name, wherever that is, or a name that the driver behind the gate is known by in the
// process, such as the software device's.
bool names_driver(const char* file) noexcept {
  if (std::string_view(file).starts_with("libcuda.so")) return true;
  void* const library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  const void* const found = find_symbol(library, "cuInit");
  dlclose(library);  // this call's count only
  return found != nullptr && found == led.load(std::memory_order_acquire)->driver;
}

// Answers with the tenant whose code opens the file, or with null where the loader's answer depends
// on who asks.
void* before_open(const char* file, const void* caller) noexcept {
  try {
    GatedTenant* const tenant = owner_of_code(before_return(caller)).tenant;
    if (tenant == nullptr || file == nullptr) return nullptr;
    const std::string_view name = file;
    if (name.find('$') != std::string_view::npos) return nullptr;  // "$ORIGIN" is the caller's
    const bool is_searched_for = name.find('/') == std::string_view::npos;
    if (is_searched_for && has_run_path(*tenant) && !names_driver(file)) return nullptr;
    record_code_before_open();
    return tenant;
  } catch (...) {  // out of memory: what is opened is nobody's
    return nullptr;
  }
}

// The code that opens it may catch what a constructor throws, but the loader would not go on.
void* open_for_tenant(const TenantIdentity& tenant, const char* file, int mode,
                      ctxb_gate_open open) noexcept {
  try {
    return open(file, mode);
  } catch (...) {
    end_after_loader_exception(&tenant, file);
  }
}

void* open_for(void* answer, const char* file, int mode, ctxb_gate_open open) noexcept {
  GatedTenant& tenant = *static_cast<GatedTenant*>(answer);
  void* const library = open_for_tenant(tenant.identity(), file, mode, open);
  if (library == nullptr) return nullptr;
  try {
    record_opened_code(tenant, library);
  } catch (...) {  // out of memory: it is nobody's
    return library;
  }
  lead_imports_of(tenant, *led.load(std::memory_order_acquire));
  return library;
}

}  // namespace

void start_leading_imports(const ctxb_gate& gate, bool late) {
  auto* const made = new Led{late, nullptr, {}};  // never freed
  made->imports.push_back({"dlopen", 0, address_of(gate.watched_dlopen)});
  for (std::uint32_t index = 0; index < gate.count; ++index) {
    if (std::string_view(gate.entries[index].symbol) != "cuInit") continue;
    made->driver = reinterpret_cast<const void*>(gate.driver_function(index));
  }
  made->imports.push_back({"dlsym", 0, address_of(gate.watched_dlsym)});
  made->imports.push_back({"dlvsym", 0, address_of(gate.watched_dlvsym)});
  if (late) {
    for (std::uint32_t index = 0; index < gate.count; ++index) {
      const ctxb_gate_entry& entry = gate.entries[index];
      const std::uintptr_t of = address_of(gate.driver_function(index));
      if (entry.guarded == 0 || of == 0) continue;
      made->imports.push_back({entry.symbol, of, address_of(gate.exported_function(index))});
    }
  }
  std::sort(made->imports.begin(), made->imports.end(),
            [](const Import& a, const Import& b) { return a.name < b.name; });
  led.store(made, std::memory_order_release);
  gate.observe_opens(before_open, open_for);
}

void lead_imports(GatedTenant& tenant) noexcept {
  const Led* const all = led.load(std::memory_order_acquire);
  if (all != nullptr) lead_imports_of(tenant, *all);
}

std::size_t count_kept_functions(const std::vector<Extent>& code) noexcept {
  const Led* const all = led.load(std::memory_order_acquire);
  if (all == nullptr || !all->late) return 0;
  try {
    KeptCount count{code, {}, 0};
    for (const Import& import : all->imports) {
      if (import.of != 0) count.functions.push_back(import.of);
    }
    std::sort(count.functions.begin(), count.functions.end());
    dl_iterate_phdr(count_kept, &count);
    return count.kept;
  } catch (const std::bad_alloc&) {
    return 0;  // not known
  }
}

}  // namespace ctxbroker::detail
