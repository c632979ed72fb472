// SPDX-License-Identifier: Apache-2.0
#include "gate/dynamic_tables.hpp"

namespace ctxbroker::detail {

DynamicTables dynamic_tables_of(const dl_phdr_info& object) noexcept {
  std::uintptr_t values[DT_NUM] = {};  // by tag; 0: the library has none
  for (const ElfW(Phdr) & part : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
    if (part.p_type != PT_DYNAMIC) continue;
    const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + part.p_vaddr);
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag > 0 && entry->d_tag < DT_NUM) values[entry->d_tag] = entry->d_un.d_ptr;
    }
  }
  if (values[DT_SYMTAB] == 0 || values[DT_STRTAB] == 0) return {};
  // The loader has made it an address, or on some systems left it an offset.
  const auto address = [&](int tag) {
    return values[tag] < object.dlpi_addr ? object.dlpi_addr + values[tag] : values[tag];
  };
  const auto relocations = [&](int table, int bytes) -> std::span<const ElfW(Rela)> {
    if (values[table] == 0) return {};
    return {reinterpret_cast<const ElfW(Rela)*>(address(table)),
            values[bytes] / sizeof(ElfW(Rela))};
  };
  return {reinterpret_cast<const ElfW(Sym)*>(address(DT_SYMTAB)),
          reinterpret_cast<const char*>(address(DT_STRTAB)),
          {relocations(DT_JMPREL, DT_PLTRELSZ), relocations(DT_RELA, DT_RELASZ)}};
}

}  // namespace ctxbroker::detail
