// SPDX-License-Identifier: Apache-2.0
/* See parts.h. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "gate/library/parts.h"

/* A loader gives functions and objects the same kind of address, and so does this file. */
#pragma GCC diagnostic ignored "-Wpedantic"

/* The gate's. */
void cuInit(void);

static ctxb_gate_before_open before_open;
static ctxb_gate_open_for open_for;

void ctxb_gate_observe_opens(ctxb_gate_before_open before, ctxb_gate_open_for open) {
  open_for = open;
  __atomic_store_n(&before_open, before, __ATOMIC_RELEASE);
}

static const char* own_file(void) {
  Dl_info self;
  return dladdr((const void*)&before_open, &self) != 0 ? self.dli_fname : NULL;
}

/* The driver, by whatever path, is the gate: a second one in a process does not work, and a tool's
 * dlopen may have the driver's own for that name. So is the driver behind the gate under any other
 * name. Where a path leads to no file, the loader says so. */
static void* open_library(const char* file, int mode) {
  const char* own = own_file();
  if (own == NULL) return dlopen(file, mode);
  const char* slash = strrchr(file, '/');
  const char* name = slash != NULL ? slash + 1 : file;
  const int names_driver = strncmp(name, "libcuda.so", strlen("libcuda.so")) == 0;
  if (names_driver && (slash == NULL || access(file, F_OK) == 0)) return dlopen(own, mode);
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
  *library = open_for(answer, file, mode, open_library);
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

/* The same for the gate's own function of that name. */
static const void* find_as(void* handle, const char* name, const char* version, const void* caller,
                           const void* of_gate) {
  return handle == RTLD_DEFAULT || handle == RTLD_NEXT ? find_for(caller, name, version, of_gate)
                                                       : find(handle, name, version);
}

/* A function that the table does not know. Where the gate is found, the driver would be found if it
 * were there alone. */
static void* unknown_answer(void* handle, const char* name, const void* caller) {
  void* const of_driver = ctxb_gate_drivers_own(name);
  if (of_driver == NULL) return NULL;
  const void* const found = find_as(handle, name, NULL, caller, NULL);
  if (found == NULL) {
    const void* const init = find_as(handle, "cuInit", NULL, caller, NULL);
    if (init != (const void*)cuInit) return NULL;
  } else if (found != of_driver) {
    return NULL;
  }
  ctxb_gate_observe_look_up(name, ctxb_gate_found_unknown);
  return of_driver;
}

void* ctxb_gate_look_up_watched(void* handle, const char* name, const char* version,
                                const void* caller) {
  if (!ctxb_gate_names_function(name)) return NULL;
  const ctxb_gate* gate = ctxb_gate_get();
  uint32_t index = 0;
  while (index < gate->count && strcmp(gate->entries[index].symbol, name) != 0) ++index;
  void* answer = NULL;
  if (index < gate->count && gate->entries[index].guarded) {
    const void* const of_driver = (const void*)gate->driver_function(index);
    void* const of_gate = (void*)gate->exported_function(index);
    const void* const found = find_as(handle, name, version, caller, of_gate);
    if (found != NULL && found == of_driver) answer = of_gate;
  } else if (index == gate->count && version == NULL) {
    answer = unknown_answer(handle, name, caller);
  }
  if (answer != NULL) dlerror(); /* a look-up on the way may have failed */
  return answer;
}
