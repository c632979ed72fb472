// SPDX-License-Identifier: Apache-2.0
/* Finds a symbol that a loaded library itself exports. dlsym cannot be trusted for this, because
 * some tools replace it and return their own functions for the driver's names. */
#pragma once

#include <link.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `library` is a handle from dlopen. Returns NULL when the library does not export the name. */
__attribute__((visibility("hidden"))) void* ctxb_own_symbol(void* library, const char* name);

/* Calls `found` with each name that the library itself exports. */
__attribute__((visibility("hidden"))) void ctxb_each_own_symbol(
    void* library, void (*found)(const char* name, void* context), void* context);

/* Where the library's table of symbols has the name; NULL: nowhere. Of `library`, only the address
 * and the dynamic section are read. */
__attribute__((visibility("hidden"))) const ElfW(Sym) *
    ctxb_symbol_entry(const struct link_map* library, const char* name);

#ifdef __cplusplus
}
#endif
