/* See watched_open.h. */
#include "gate/library/watched_open.h"

#include <dlfcn.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wpedantic"

static ctxb_gate_before_open before_open;
static ctxb_gate_after_open after_open;

void ctxb_gate_observe_opens(ctxb_gate_before_open before, ctxb_gate_after_open after) {
  after_open = after;
  __atomic_store_n(&before_open, before, __ATOMIC_RELEASE);
}

/* The driver, by whatever path, is the gate: a second one in a process does not work, and a tool's
 * dlopen may have the driver's own for that name. */
static const char* file_to_open(const char* file) {
  const char* slash = strrchr(file, '/');
  const char* name = slash != NULL ? slash + 1 : file;
  if (strncmp(name, "libcuda.so", strlen("libcuda.so")) != 0) return file;
  Dl_info self;
  return dladdr((const void*)&before_open, &self) != 0 && self.dli_fname != NULL ? self.dli_fname
                                                                                 : file;
}

int ctxb_gate_open_watched(const char* file, int mode, const void* caller, void** library) {
  const ctxb_gate_before_open before = __atomic_load_n(&before_open, __ATOMIC_ACQUIRE);
  void* answer = before != NULL ? before(file, caller) : NULL;
  if (answer == NULL) return 0;
  /* This library has no run path: what is found does not depend on it. */
  *library = dlopen(file_to_open(file), mode);
  after_open(answer, *library, caller);
  return 1;
}
