// SPDX-License-Identifier: Apache-2.0
/* The gate: which driver stands behind it, where each exported function leads, and what look-ups
 * through cuGetProcAddress give out. See gate.h.
 *
 * Its state is global because the process has one name "libcuda.so.1". */
#include "gate/library/gate.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/library_symbol.h"
#include "gate/library/parts.h"

/* A loader gives functions and objects the same kind of address, and so does this file. */
#pragma GCC diagnostic ignored "-Wpedantic"

#define EXPORT __attribute__((visibility("default")))

enum { success = 0, invalid_value = 1, no_device = 100, not_supported = 801 }; /* CUresult */

/* The rules of the table. All but the first guard their functions. */
enum {
  rule_pass,
  rule_look_up,
  rule_capture,
  rule_absorb,
  rule_scope,
  rule_own,
  rule_count,
  rule_virtualise,
  rule_refuse,
  rule_time,
  rule_report
};

static const ctxb_gate_entry entries[] = {
#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, rule) \
  {#symbol, #base, version, per_thread, rule_##rule != rule_pass},
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION
};
enum {
#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, rule) index_##symbol,
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION
  entry_count
};

/* Each leads to the second half of its block at first. */
ctxb_gate_function ctxb_gate_targets[entry_count] = {
#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, rule) \
  (ctxb_gate_function)(ctxb_gate_blocks + CTXB_GATE_BLOCK_BYTES * (size_t)index_##symbol + 16),
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION
};

/* Opening a driver runs its constructors, which may look the gate's functions up again. */
static pthread_mutex_t state_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static void* driver_library;
static char driver_file[PATH_MAX];
static ctxb_gate_function real[entry_count];
static ctxb_gate_function rule[entry_count];
static const void* first_owner;
static ctxb_gate_look_up_observer look_up_observer;

static int answer_not_supported(void) {
  return not_supported;
}
static int answer_no_device(void) {
  return no_device;
}

static ctxb_gate_function exported_function(uint32_t index) {
  if (index >= entry_count) return NULL;
  return (ctxb_gate_function)(ctxb_gate_blocks + (size_t)index * CTXB_GATE_BLOCK_BYTES);
}

/* ---- cuGetProcAddress ------------------------------------------------------------------------ */

typedef int (*look_up_4)(const char*, void**, int, uint64_t);
typedef int (*look_up_5)(const char*, void**, int, uint64_t, int*);

static int is_known(const char* base) {
  uint32_t i = 0;
  while (i < entry_count && strcmp(entries[i].base, base) != 0) ++i;
  return i < entry_count;
}

/* The entry whose address the driver answered with. Of two names for one address it is the one that
 * was asked for. */
static uint32_t entry_by_address(const char* base, const void* answer) {
  uint32_t found = entry_count;
  for (uint32_t i = 0; i < entry_count; ++i) {
    if ((const void*)real[i] != answer) continue;
    if (strcmp(entries[i].base, base) == 0) return i;
    if (found == entry_count) found = i;
  }
  return found;
}

/* For a driver that gives out other addresses than it exports: the newest entry of that name that
 * is not newer than asked for. */
static uint32_t entry_by_name(const char* base, int version, int per_thread) {
  uint32_t best = entry_count;
  for (uint32_t i = 0; i < entry_count; ++i) {
    if (strcmp(entries[i].base, base) != 0 || entries[i].per_thread != per_thread) continue;
    if (entries[i].version > version) continue;
    if (best == entry_count || entries[best].version < entries[i].version) best = i;
  }
  if (best == entry_count && per_thread) return entry_by_name(base, version, 0);
  return best;
}

static void replace_guarded(const char* base, void** address, int version, uint64_t flags) {
  const ctxb_gate_look_up_observer observer = __atomic_load_n(&look_up_observer, __ATOMIC_ACQUIRE);
  if (observer != NULL) observer(base, is_known(base));
  if (*address == NULL) return;
  uint32_t index = entry_by_address(base, *address);
  if (index == entry_count) index = entry_by_name(base, version, (flags & 2) != 0);
  if (index != entry_count && entries[index].guarded) {
    *(ctxb_gate_function*)address = exported_function(index);
  }
}

static int look_up_before_12000(const char* base, void** address, int version, uint64_t flags) {
  const int status = ((look_up_4)real[index_cuGetProcAddress])(base, address, version, flags);
  if (status == success && base != NULL && address != NULL) {
    replace_guarded(base, address, version, flags);
  }
  return status;
}

static int look_up_from_12000(const char* base, void** address, int version, uint64_t flags,
                              int* found) {
  const int status =
      ((look_up_5)real[index_cuGetProcAddress_v2])(base, address, version, flags, found);
  if (status == success && base != NULL && address != NULL) {
    replace_guarded(base, address, version, flags);
  }
  return status;
}

/* ---- the driver behind it -------------------------------------------------------------------- */

static void set_target(uint32_t index) {
  ctxb_gate_function leads_to = real[index];
  if (leads_to == NULL) {
    leads_to = (ctxb_gate_function)answer_not_supported;
  } else if (index == index_cuGetProcAddress) {
    leads_to = (ctxb_gate_function)look_up_before_12000;
  } else if (index == index_cuGetProcAddress_v2) {
    leads_to = (ctxb_gate_function)look_up_from_12000;
  } else if (rule[index] != NULL) {
    leads_to = rule[index];
  }
  __atomic_store_n(&ctxb_gate_targets[index], leads_to, __ATOMIC_RELEASE);
}

/* Formats into `error`, where there is one; macro, because the format is checked where it stands.
 */
#define SAY(error, bytes, ...) \
  ((error) != NULL && (bytes) > 0 ? (void)snprintf(error, bytes, __VA_ARGS__) : (void)0)

/* Returns whether a library is the gate itself, by whatever path it was found. */
static int is_gate(void* library) {
  return ctxb_own_symbol(library, "ctxb_gate_get") != NULL;
}

static void adopt_driver(void* library, const char* file) {
  snprintf(driver_file, sizeof driver_file, "%s", file);
  for (uint32_t i = 0; i < entry_count; ++i) {
    *(void**)&real[i] = ctxb_own_symbol(library, entries[i].symbol);
  }
  __atomic_store_n(&driver_library, library, __ATOMIC_RELEASE);
  for (uint32_t i = 0; i < entry_count; ++i) set_target(i);
}

struct attempt {
  char* error;
  size_t error_bytes;
};

/* Passes over a file that is no driver, or that is the gate by another path. */
static int try_file(const char* file, void* context) {
  struct attempt* attempt = context;
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    const char* why = dlerror();
    SAY(attempt->error, attempt->error_bytes, "%s",
        why != NULL ? why : "the loader gave no reason");
    return 0;
  }
  if (is_gate(library) || ctxb_own_symbol(library, "cuInit") == NULL) {
    SAY(attempt->error, attempt->error_bytes, "%s: %s", file,
        is_gate(library) ? "the gate itself, not a driver" : "no driver: it has no cuInit");
    dlclose(library);
    return 0;
  }
  adopt_driver(library, file);
  return 1;
}

static void* open_driver(const char* file, char* error, size_t error_bytes) {
  struct attempt attempt = {error, error_bytes};
  pthread_mutex_lock(&state_lock);
  void* library = driver_library;
  if (library != NULL) {
    /* NVIDIA's driver stands there under the path where it was found. */
    void* wanted = file != NULL ? dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : NULL;
    const int nvidia = strstr(driver_file, "libcuda.so") != NULL;
    if (file != NULL ? wanted != library : !nvidia) {
      SAY(error, error_bytes, "another driver stands behind the gate already: %s", driver_file);
      library = NULL;
    }
    if (wanted != NULL) dlclose(wanted);
  } else {
    SAY(error, error_bytes,
        "libcuda.so.1: cannot open shared object file: No such file or directory");
    const int opened = file != NULL ? try_file(file, &attempt)
                                    : ctxb_gate_for_each_driver_file(try_file, &attempt);
    library = opened ? driver_library : NULL;
  }
  pthread_mutex_unlock(&state_lock);
  return library;
}

/* The software device, beside the gate's own file. */
static int find_software_device(char* path, size_t bytes) {
  Dl_info self;
  if (dladdr((const void*)entries, &self) == 0 || self.dli_fname == NULL) return 0;
  char folder[PATH_MAX];
  if (realpath(self.dli_fname, folder) == NULL) return 0;
  char* slash = strrchr(folder, '/');
  if (slash == NULL) return 0;
  *slash = '\0';
  char candidate[PATH_MAX + 64];
  snprintf(candidate, sizeof candidate, "%s/libctxbroker_software_device.so", folder);
  char resolved[PATH_MAX];
  if (realpath(candidate, resolved) == NULL) return 0;
  snprintf(path, bytes, "%s", resolved);
  return 1;
}

/* A call came before a broker chose the driver. It is the environment's choice then, or NVIDIA's.
 */
ctxb_gate_function ctxb_gate_resolve(uint64_t index) {
  pthread_mutex_lock(&state_lock);
  if (driver_library == NULL) {
    char path[PATH_MAX];
    const char* choice = secure_getenv("CTXBROKER_DRIVER");
    if (choice != NULL && strcmp(choice, "software") == 0) {
      if (find_software_device(path, sizeof path)) open_driver(path, NULL, 0);
    } else {
      open_driver(NULL, NULL, 0);
    }
  }
  const ctxb_gate_function leads_to =
      driver_library != NULL ? __atomic_load_n(&ctxb_gate_targets[index], __ATOMIC_ACQUIRE)
                             : (ctxb_gate_function)answer_no_device;
  pthread_mutex_unlock(&state_lock);
  return leads_to;
}

/* ---- what the broker is given ---------------------------------------------------------------- */

static const char* driver_path(void) {
  return __atomic_load_n(&driver_library, __ATOMIC_ACQUIRE) != NULL ? driver_file : NULL;
}

static ctxb_gate_function driver_function(uint32_t index) {
  if (index >= entry_count || __atomic_load_n(&driver_library, __ATOMIC_ACQUIRE) == NULL)
    return NULL;
  return real[index];
}

int ctxb_gate_is_driver(const void* library) {
  return library == __atomic_load_n(&driver_library, __ATOMIC_ACQUIRE);
}

static int claim(const void* owner) {
  pthread_mutex_lock(&state_lock);
  if (first_owner == NULL) first_owner = owner;
  const int is_first = first_owner == owner;
  pthread_mutex_unlock(&state_lock);
  return is_first;
}

static void install(uint32_t index, ctxb_gate_function function) {
  if (index >= entry_count) return;
  pthread_mutex_lock(&state_lock);
  rule[index] = function;
  if (driver_library != NULL) set_target(index);
  pthread_mutex_unlock(&state_lock);
}

static void observe_look_ups(ctxb_gate_look_up_observer observer) {
  __atomic_store_n(&look_up_observer, observer, __ATOMIC_RELEASE);
}

EXPORT const ctxb_gate* ctxb_gate_get(void) {
  static const ctxb_gate gate = {.size = sizeof(ctxb_gate),
                                 .abi = ctxb_gate_abi,
                                 .count = entry_count,
                                 .entries = entries,
                                 .open_driver = open_driver,
                                 .driver_path = driver_path,
                                 .driver_function = driver_function,
                                 .exported_function = exported_function,
                                 .claim = claim,
                                 .install = install,
                                 .observe_look_ups = observe_look_ups,
                                 .late_dlsym = (ctxb_gate_function)ctxb_gate_late_dlsym,
                                 .late_dlvsym = (ctxb_gate_function)ctxb_gate_late_dlvsym,
                                 .observe_opens = ctxb_gate_observe_opens,
                                 .watched_dlopen = (ctxb_gate_function)ctxb_gate_watched_dlopen};
  return &gate;
}
