/* A function that a loaded library itself exports. dlsym may be another's: tools stand in front of
 * it and give out functions of their own under the driver's names. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* `library` is what dlopen returned. NULL: it exports no such name. */
__attribute__((visibility("hidden"))) void* ctxb_own_symbol(void* library, const char* name);

#ifdef __cplusplus
}
#endif
