// SPDX-License-Identifier: Apache-2.0
/* plugin.h is promised to compile as C11 without extensions; this file is compiled as such. */
#include <ctxbroker/plugin.h>

_Static_assert(CTXB_OK == 0, "success is 0");

static ctxb_status init(const char* path) {
  return path != 0 ? CTXB_OK : CTXB_ERROR;
}
static void deinit(void) {}
static const void* get_factory(const char* id) {
  (void)id;
  return 0;
}

const ctxb_plugin_entry_type ctxb_plugin_entry = {
    sizeof(ctxb_plugin_entry_type), CTXB_ABI_MAJOR, CTXB_ABI_MINOR, init, deinit, get_factory};
