// SPDX-License-Identifier: Apache-2.0
/* The calls that are not implemented: weak, so that the implemented ones take their place. They are
 * called with arguments they do not look at, which the platform's calling convention allows. */
#include "api/entry_points.h"

int ctxb_refuse_unsupported_call(const char* name); /* CUDA_ERROR_NOT_SUPPORTED */

#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, policy) \
  __attribute__((weak, visibility("default"))) int symbol(void);               \
  int symbol(void) {                                                           \
    return ctxb_refuse_unsupported_call(#symbol);                              \
  }
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION

#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, policy) \
  {#symbol, #base, version, per_thread, (void (*)(void))symbol},
const struct ctxb_entry_point ctxb_entry_points[] = {
#include "driver/function_table.inc"
};
#undef CTXB_DRIVER_FUNCTION

const unsigned ctxb_entry_point_count = sizeof ctxb_entry_points / sizeof ctxb_entry_points[0];
