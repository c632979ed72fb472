// The addresses from a loaded object's first to its last byte.
#pragma once

#include <link.h>

#include <algorithm>
#include <cstdint>
#include <span>

namespace ctxbroker::detail {

struct Extent {
  std::uintptr_t begin = 0, end = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

inline Extent extent_of(const dl_phdr_info& object) noexcept {
  Extent extent{UINTPTR_MAX, 0};
  for (const ElfW(Phdr) & part : std::span(object.dlpi_phdr, object.dlpi_phnum)) {
    if (part.p_type != PT_LOAD) continue;
    const std::uintptr_t at = object.dlpi_addr + part.p_vaddr;
    extent.begin = std::min(extent.begin, at);
    extent.end = std::max(extent.end, at + part.p_memsz);
  }
  return extent;
}

}  // namespace ctxbroker::detail
