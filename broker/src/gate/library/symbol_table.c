// SPDX-License-Identifier: Apache-2.0
/* The gate's table of symbols, in which the loader finds what the gate exports. The gate exports
 * all that any driver has. Once the driver behind it is known, what this one lacks is hidden: it
 * cannot be linked or looked up, as with the driver alone. */
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver/library_symbol.h"
#include "gate/library/parts.h"

/* This library's, as the linker has placed and named them. The loader is not asked. */
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming)
extern const ElfW(Ehdr) __ehdr_start CTXB_GATE_INSIDE;
extern ElfW(Dyn) _DYNAMIC[] CTXB_GATE_INSIDE;

static struct link_map own_map(void) {
  const struct link_map map = {.l_addr = (ElfW(Addr)) & __ehdr_start, .l_ld = _DYNAMIC};
  return map;
}

/* What the pages there may be used for; 0: they are not of this library. */
static int access_of(uintptr_t address) {
  /* To the compiler, the library is no larger than its header. */
  uintptr_t base = (uintptr_t)&__ehdr_start;
  __asm__("" : "+r"(base));
  const ElfW(Phdr)* parts = (const ElfW(Phdr)*)(base + __ehdr_start.e_phoff);
  for (unsigned i = 0; i < __ehdr_start.e_phnum; ++i) {
    const uintptr_t begin = base + parts[i].p_vaddr;
    if (parts[i].p_type != PT_LOAD || address < begin || address - begin >= parts[i].p_memsz) {
      continue;
    }
    return ((parts[i].p_flags & PF_R) != 0 ? PROT_READ : 0) |
           ((parts[i].p_flags & PF_W) != 0 ? PROT_WRITE : 0) |
           ((parts[i].p_flags & PF_X) != 0 ? PROT_EXEC : 0);
  }
  return 0;
}

/* Other threads may look symbols up meanwhile: the table can be read all the time, and a value is
 * written in one piece. The loader passes over a symbol without a value. */
static void hide(ElfW(Sym) * symbol) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)symbol;
  const uintptr_t begin = at / page * page;
  const size_t bytes = at + sizeof *symbol - begin;
  const int access = access_of(at);
  /* Where the system refuses that, the function stays, and answers NOT_SUPPORTED. */
  if (access == 0 || mprotect((void*)begin, bytes, access | PROT_WRITE) != 0) return;
  __atomic_store_n(&symbol->st_value, 0, __ATOMIC_RELAXED);
  mprotect((void*)begin, bytes, access);
}

void ctxb_gate_hide_exports(int (*is_missing)(uint32_t index)) {
  const struct link_map map = own_map();
  const ctxb_gate* gate = ctxb_gate_get();
  for (uint32_t i = 0; i < gate->count; ++i) {
    if (!is_missing(i)) continue;
    const ElfW(Sym)* symbol = ctxb_symbol_entry(&map, gate->entries[i].symbol);
    if (symbol != NULL) hide((ElfW(Sym)*)symbol);
  }
}
