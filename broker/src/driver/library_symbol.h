// SPDX-License-Identifier: Apache-2.0
/* Finds a symbol that a loaded library itself exports. dlsym cannot be trusted for this, because
 * some tools replace it and return their own functions for the driver's names. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* `library` is a handle from dlopen. Returns NULL when the library does not export the name. */
__attribute__((visibility("hidden"))) void* ctxb_own_symbol(void* library, const char* name);

#ifdef __cplusplus
}
#endif
