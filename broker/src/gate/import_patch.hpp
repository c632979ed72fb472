// Changes where the imports of a loaded library lead. This is the operating system's part of the
// gate's work on the libraries of tenants.
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ctxbroker::detail {

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

// Changes the slots that the loader filled in for these imports; `imports` is sorted by name. Reads
// the library's tables of relocations, and no other data of it. Each slot is written in one piece,
// and only while it still holds what is to be replaced, so threads may run in the library
// meanwhile. Where the loader has made the slots read-only (RELRO), they are writable until this
// returns. Call it while the loader lets no library go (in dl_iterate_phdr), one thread at a time.
PatchResult patch_imports(const dl_phdr_info& object, std::span<const Import> imports) noexcept;

}  // namespace ctxbroker::detail
