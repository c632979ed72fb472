/* See late_look_up.h. */
#include "gate/library/late_look_up.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "gate/library/gate.h"

/* A loader gives functions and objects the same kind of address, and so does this file. */
#pragma GCC diagnostic ignored "-Wpedantic"

static void* find(void* handle, const char* name, const char* version) {
  return version != NULL ? dlvsym(handle, name, version) : dlsym(handle, name);
}

/* RTLD_DEFAULT and RTLD_NEXT mean what the caller's library can see: what everybody can, or what it
 * needs itself. */
static void* find_for(const void* caller, const char* name, const char* version,
                      const void* of_gate) {
  void* found = find(RTLD_DEFAULT, name, version);
  if (found != NULL && found != of_gate) return found;
  Dl_info where;
  struct link_map* library = NULL;
  if (dladdr1(caller, &where, (void**)&library, RTLD_DL_LINKMAP) == 0 || library == NULL) {
    return NULL;
  }
  return find(library, name, version); /* glibc's handles are its link maps */
}

void* ctxb_gate_late_answer(void* handle, const char* name, const char* version,
                            const void* caller) {
  /* All that the driver exports begins so, and little else. */
  if (name == NULL || name[0] != 'c' || name[1] != 'u' || name[2] < 'A' || name[2] > 'Z') {
    return NULL;
  }
  const ctxb_gate* gate = ctxb_gate_get();
  uint32_t index = 0;
  while (index < gate->count && strcmp(gate->entries[index].symbol, name) != 0) ++index;
  if (index == gate->count || !gate->entries[index].guarded) return NULL;
  const ctxb_gate_function of_driver = gate->driver_function(index);
  const ctxb_gate_function of_gate = gate->exported_function(index);
  const void* found = handle == RTLD_DEFAULT || handle == RTLD_NEXT
                          ? find_for(caller, name, version, (const void*)of_gate)
                          : find(handle, name, version);
  if (found == NULL || found != (const void*)of_driver) return NULL;
  dlerror(); /* a look-up on the way may have failed */
  return (void*)of_gate;
}
