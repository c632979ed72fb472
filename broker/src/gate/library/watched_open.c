/* See watched_open.h. */
#include "gate/library/watched_open.h"

#include <dlfcn.h>

static ctxb_gate_before_open before_open;
static ctxb_gate_after_open after_open;

void ctxb_gate_observe_opens(ctxb_gate_before_open before, ctxb_gate_after_open after) {
  after_open = after;
  __atomic_store_n(&before_open, before, __ATOMIC_RELEASE);
}

int ctxb_gate_open_watched(const char* file, int mode, const void* caller, void** library) {
  const ctxb_gate_before_open before = __atomic_load_n(&before_open, __ATOMIC_ACQUIRE);
  void* answer = before != NULL ? before(file, caller) : NULL;
  if (answer == NULL) return 0;
  /* This library has no run path: what is found does not depend on it. */
  *library = dlopen(file, mode);
  after_open(answer, *library, caller);
  return 1;
}
