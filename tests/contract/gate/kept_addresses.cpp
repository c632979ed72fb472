// SPDX-License-Identifier: Apache-2.0
#include "kept_addresses.hpp"

#include <dlfcn.h>
#include <link.h>

#include <cstdint>
#include <set>
#include <vector>

namespace ctxbroker {
namespace {

// Sanitizers have fenced off parts of a library's data.
__attribute__((no_sanitize("address", "thread"))) void* word_at(std::uintptr_t address) {
  return *reinterpret_cast<void**>(address);
}

// Every word that a library keeps in what it may write to.
std::vector<void*> kept_words(const std::string& file_name) {
  struct Search {
    std::string file_name;
    std::vector<void*> words;
  } search{file_name, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* given) {
        auto& all = *static_cast<Search*>(given);
        if (std::string(info->dlpi_name).find(all.file_name) == std::string::npos) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_W) == 0) continue;
          const std::uintptr_t begin = info->dlpi_addr + part.p_vaddr;
          for (std::uintptr_t at = begin; at + sizeof(void*) <= begin + part.p_memsz;
               at += sizeof(void*)) {
            all.words.push_back(word_at(at));
          }
        }
        return 0;
      },
      &search);
  return search.words;
}

}  // namespace

Kept kept_addresses(const std::string& file_name, void* gate, void* driver) {
  std::set<void*> guarded, gates;
#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, rule) \
  if (std::string(#rule) != "pass") {                                        \
    guarded.insert(dlsym(driver, #symbol));                                  \
    gates.insert(dlsym(gate, #symbol));                                      \
  }
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION
  guarded.erase(nullptr);
  gates.erase(nullptr);
  Kept kept;
  for (void* word : kept_words(file_name)) {
    kept.past += guarded.count(word);
    kept.through += gates.count(word);
  }
  return kept;
}

}  // namespace ctxbroker
