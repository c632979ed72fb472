// SPDX-License-Identifier: Apache-2.0
/* See library_symbol.h. Written in C without dependencies, because the gate contains this file too.
 */
#include "driver/library_symbol.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A loader gives functions and objects the same kind of address, and so does this file. */
#pragma GCC diagnostic ignored "-Wpedantic"

/* The tables in which the loader looks up a library's symbols. */
struct tables {
  const ElfW(Sym) * symbols;
  const char* names;
  const uint32_t* hashes;
};

static struct tables tables_of(const struct link_map* library) {
  struct tables tables = {NULL, NULL, NULL};
  if (library == NULL) return tables;
  for (const ElfW(Dyn)* entry = library->l_ld; entry->d_tag != DT_NULL; ++entry) {
    /* This is an address, or on some systems still an offset. */
    const ElfW(Addr) value = entry->d_un.d_ptr;
    const ElfW(Addr) at = value < library->l_addr ? library->l_addr + value : value;
    if (entry->d_tag == DT_SYMTAB) tables.symbols = (const ElfW(Sym)*)at;
    if (entry->d_tag == DT_STRTAB) tables.names = (const char*)at;
    if (entry->d_tag == DT_GNU_HASH) tables.hashes = (const uint32_t*)at;
  }
  return tables;
}

static uint32_t hash_of(const char* name) {
  uint32_t hash = 5381;
  for (; *name != '\0'; ++name) hash = hash * 33 + (unsigned char)*name;
  return hash;
}

/* A symbol without a value is hidden. */
static int is_defined(const ElfW(Sym) * symbol) {
  return symbol->st_shndx != SHN_UNDEF &&
         (symbol->st_value != 0 || ELF64_ST_TYPE(symbol->st_info) == STT_TLS);
}

/* The hash table holds four numbers, a Bloom filter, the first symbol of each bucket, and the
 * chains. */
static const ElfW(Sym) * find(const struct tables* tables, const char* name) {
  if (tables->symbols == NULL || tables->names == NULL || tables->hashes == NULL) return NULL;
  const uint32_t buckets = tables->hashes[0], first = tables->hashes[1];
  const uint32_t filter_words = tables->hashes[2];
  if (buckets == 0) return NULL;
  const uint32_t* bucket =
      tables->hashes + 4 + (size_t)filter_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  const uint32_t hash = hash_of(name);
  uint32_t index = bucket[hash % buckets];
  if (index < first) return NULL;
  for (;; ++index) {
    const uint32_t one = chain[index - first];
    const ElfW(Sym)* symbol = &tables->symbols[index];
    if ((one | 1U) == (hash | 1U) && strcmp(tables->names + symbol->st_name, name) == 0) {
      return is_defined(symbol) ? symbol : NULL;
    }
    if ((one & 1U) != 0) return NULL; /* the end of the chain */
  }
}

/* Its map; NULL: the loader does not tell. */
static const struct link_map* map_of(void* library) {
  struct link_map* map = NULL;
  return dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map : NULL;
}

const ElfW(Sym) * ctxb_symbol_entry(const struct link_map* library, const char* name) {
  const struct tables tables = tables_of(library);
  return find(&tables, name);
}

void* ctxb_own_symbol(void* library, const char* name) {
  const struct link_map* map = map_of(library);
  const struct tables tables = tables_of(map);
  if (tables.symbols == NULL || tables.names == NULL || tables.hashes == NULL) {
    return dlsym(library, name);
  }
  const ElfW(Sym)* symbol = find(&tables, name);
  if (symbol == NULL) return NULL;
  /* Only the loader can resolve an indirect function or a thread-local variable. */
  const unsigned char type = ELF64_ST_TYPE(symbol->st_info);
  if (type == STT_GNU_IFUNC || type == STT_TLS) return dlsym(library, name);
  return (void*)(map->l_addr + symbol->st_value);
}

void ctxb_each_own_symbol(void* library, void (*found)(const char* name, void* context),
                          void* context) {
  const struct tables tables = tables_of(map_of(library));
  if (tables.symbols == NULL || tables.names == NULL || tables.hashes == NULL) return;
  const uint32_t buckets = tables.hashes[0], first = tables.hashes[1];
  const uint32_t* bucket =
      tables.hashes + 4 + (size_t)tables.hashes[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chain = bucket + buckets;
  for (uint32_t i = 0; i < buckets; ++i) {
    if (bucket[i] < first) continue;
    uint32_t index = bucket[i];
    do {
      const ElfW(Sym)* symbol = &tables.symbols[index];
      if (is_defined(symbol)) found(tables.names + symbol->st_name, context);
    } while ((chain[index++ - first] & 1U) == 0);
  }
}
