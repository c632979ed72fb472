// SPDX-License-Identifier: Apache-2.0
// The tables of a loaded library that the loader works with: which names it looked up for the
// library, and where it put what it found.
#pragma once

#include <link.h>

#include <cstdint>
#include <span>

namespace ctxbroker::detail {

#if defined(__aarch64__)
constexpr unsigned jump_slot = R_AARCH64_JUMP_SLOT, got_entry = R_AARCH64_GLOB_DAT;
constexpr unsigned data_word = R_AARCH64_ABS64;
#elif defined(__x86_64__)
constexpr unsigned jump_slot = R_X86_64_JUMP_SLOT, got_entry = R_X86_64_GLOB_DAT;
constexpr unsigned data_word = R_X86_64_64;
#else
constexpr unsigned jump_slot = ~0U, got_entry = ~0U, data_word = ~0U;  // this processor has no gate
#endif

struct DynamicTables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  std::span<const ElfW(Rela)> relocations[2];
};
// Null tables where the library has none. Use them while the loader lets no library go (in
// dl_iterate_phdr).
DynamicTables dynamic_tables_of(const dl_phdr_info& object) noexcept;

inline unsigned type_of(const ElfW(Rela) & relocation) noexcept {
  return static_cast<unsigned>(ELF64_R_TYPE(relocation.r_info));
}
// The loader fills a word with the address of a symbol.
inline bool fills_with_symbol(const ElfW(Rela) & relocation) noexcept {
  const unsigned type = type_of(relocation);
  return ELF64_R_SYM(relocation.r_info) != 0 && relocation.r_addend == 0 &&
         (type == jump_slot || type == got_entry || type == data_word);
}
inline const ElfW(Sym) &
    symbol_of(const DynamicTables& tables, const ElfW(Rela) & relocation) noexcept {
  return tables.symbols[ELF64_R_SYM(relocation.r_info)];
}

}  // namespace ctxbroker::detail
