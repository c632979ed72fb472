// SPDX-License-Identifier: Apache-2.0
/* See parts.h. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "gate/library/parts.h"

/* A loader gives functions and objects the same kind of address, and so does this file. */
#pragma GCC diagnostic ignored "-Wpedantic"

static ctxb_gate_before_open before_open;
static ctxb_gate_after_open after_open;

void ctxb_gate_observe_opens(ctxb_gate_before_open before, ctxb_gate_after_open after) {
  after_open = after;
  __atomic_store_n(&before_open, before, __ATOMIC_RELEASE);
}

static const char* own_file(void) {
  Dl_info self;
  return dladdr((const void*)&before_open, &self) != 0 ? self.dli_fname : NULL;
}

/* The driver, by whatever path, is the gate: a second one in a process does not work, and a tool's
 * dlopen may have the driver's own for that name. So is the driver behind the gate under any other
 * name. */
static void* open_library(const char* file, int mode) {
  const char* own = own_file();
  if (own == NULL) return dlopen(file, mode);
  const char* slash = strrchr(file, '/');
  const char* name = slash != NULL ? slash + 1 : file;
  if (strncmp(name, "libcuda.so", strlen("libcuda.so")) == 0) return dlopen(own, mode);
  void* library = dlopen(file, mode);
  if (library == NULL || !ctxb_gate_is_driver(library)) return library;
  dlclose(library); /* this call's count only */
  return dlopen(own, mode);
}

int ctxb_gate_open_watched(const char* file, int mode, const void* caller, void** library) {
  const ctxb_gate_before_open before = __atomic_load_n(&before_open, __ATOMIC_ACQUIRE);
  void* answer = before != NULL ? before(file, caller) : NULL;
  if (answer == NULL) return 0;
  /* This library has no run path: what is found does not depend on it. */
  *library = open_library(file, mode);
  after_open(answer, *library);
  return 1;
}

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
