// Changes what a loaded library has been given by the loader: slots of functions that it imports,
// and addresses that it keeps in what it may write to. The operating system's part of the late
// gate.
#pragma once

#include <link.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ctxbroker::detail {

struct Replacement {
  std::uintptr_t of = 0, by = 0;
};
// By what is replaced, ascending.
using Replacements = std::vector<Replacement>;

// A function that the library imports, by name.
struct ImportReplacement {
  std::string_view name;
  std::uintptr_t by = 0;
};

struct PatchResult {
  std::size_t words = 0;    // that were replaced
  std::size_t imports = 0;  // the same of imports
  std::size_t refused = 0;  // that could not be: the system lets nobody write there
};

// Called while the loader lets no library go (dl_iterate_phdr). Each word is replaced in one piece
// and only where it still is what was to be replaced, so threads may run inside meanwhile.
PatchResult patch_object(const dl_phdr_info& object, const Replacements& words,
                         std::span<const ImportReplacement> imports) noexcept;

// How many such words it keeps; changes nothing. Likewise.
std::size_t count_words(const dl_phdr_info& object, const Replacements& words) noexcept;

}  // namespace ctxbroker::detail
