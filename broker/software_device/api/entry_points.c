// SPDX-License-Identifier: Apache-2.0
/* The calls that are not implemented: weak, so that the implemented ones take their place. They are
 * called with arguments they do not look at, which the platform's calling convention allows.
 * Functions of a later CUDA than CTXB_NEWEST_CUDA are hidden: a driver of that version does not
 * export them. */
#include "api/entry_points.h"

#define TEXT_OF(value) #value
#define TEXT(macro) TEXT_OF(macro)

int ctxb_refuse_unsupported_call(const char* name); /* CUDA_ERROR_NOT_SUPPORTED */

#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, policy) \
  __attribute__((weak, visibility("default"))) int symbol(void);               \
  int symbol(void) {                                                           \
    return ctxb_refuse_unsupported_call(#symbol);                              \
  }                                                                            \
  __asm__(".if " #version " > " TEXT(CTXB_NEWEST_CUDA) "\n.hidden " #symbol "\n.endif");
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION

#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, policy) \
  {#symbol, #base, version, per_thread, (void (*)(void))symbol},
const struct ctxb_entry_point ctxb_entry_points[] = {
#include "driver/function_table.inc"
};
#undef CTXB_DRIVER_FUNCTION

const unsigned ctxb_entry_point_count = sizeof ctxb_entry_points / sizeof ctxb_entry_points[0];
