// SPDX-License-Identifier: Apache-2.0
/* The gate: which driver stands behind it, where each exported function leads, and what look-ups
 * through cuGetProcAddress give out. See gate.h.
 *
 * Its state is global because the process has one name "libcuda.so.1". */
#include "gate/library/gate.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

/* Nothing that this guards calls the loader: a thread that waits for the loader's lock must hold no
 * lock of the gate, because code that has the loader's lock (a constructor) calls the driver too.
 */
static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;
static void* driver_library; /* set once, after everything else of the driver */
static char driver_file[PATH_MAX];
static ctxb_gate_function real[entry_count];
static ctxb_gate_function rule[entry_count];
static const void* first_owner;
static ctxb_gate_look_up_observer look_up_observer;

/* Of ctxb_before_first_driver, the hook. While it runs, every target leads to ctxb_gate_resolve, so
 * that no other thread passes. */
enum { hook_waits, hook_runs, hook_done };
static int hook_state;
static pthread_t hook_thread;
static pthread_cond_t hook_ended = PTHREAD_COND_INITIALIZER;

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

/* The newest entry of that name that is not newer than asked for, of those that the driver has. */
static uint32_t entry_by_name(const char* base, int version, int per_thread) {
  uint32_t best = entry_count;
  for (uint32_t i = 0; i < entry_count; ++i) {
    if (strcmp(entries[i].base, base) != 0 || entries[i].per_thread != per_thread) continue;
    if (entries[i].version > version || real[i] == NULL) continue;
    if (best == entry_count || entries[best].version < entries[i].version) best = i;
  }
  if (best == entry_count && per_thread) return entry_by_name(base, version, 0);
  return best;
}

/* What the driver gives for that version; NULL: nothing. */
static const void* drivers_answer(const char* base, int version, uint64_t flags) {
  void* answer = NULL;
  int found = 0, status = success;
  if (real[index_cuGetProcAddress_v2] != NULL) {
    status = ((look_up_5)real[index_cuGetProcAddress_v2])(base, &answer, version, flags, &found);
  } else {
    status = ((look_up_4)real[index_cuGetProcAddress])(base, &answer, version, flags);
  }
  return status == success ? answer : NULL;
}

/* The entry of the function that the driver answered with; entry_count: the table does not know it.
 * A driver may give out another address than it exports. It gives that for the version of the
 * table's newest form too, unless it means a form that came later and has another signature. */
static uint32_t entry_of(const char* base, const void* answer, int version, uint64_t flags) {
  uint32_t index = entry_by_address(base, answer);
  if (index != entry_count) return index;
  index = entry_by_name(base, version, (flags & 2) != 0);
  if (index == entry_count) return entry_count;
  return drivers_answer(base, entries[index].version, flags) == answer ? index : entry_count;
}

void ctxb_gate_observe_look_up(const char* name, ctxb_gate_found found) {
  const ctxb_gate_look_up_observer observer = __atomic_load_n(&look_up_observer, __ATOMIC_ACQUIRE);
  if (observer != NULL) observer(name, found);
}

static void replace_guarded(const char* base, void** address, int version, uint64_t flags) {
  if (*address == NULL) return;
  const uint32_t index = entry_of(base, *address, version, flags);
  if (index == entry_count) {
    ctxb_gate_observe_look_up(base,
                              is_known(base) ? ctxb_gate_found_newer : ctxb_gate_found_unknown);
    return;
  }
  if (entries[index].guarded) *(ctxb_gate_function*)address = exported_function(index);
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

static ctxb_gate_function target_of(uint32_t index) {
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
  return leads_to;
}

static void lead(uint32_t index) {
  __atomic_store_n(&ctxb_gate_targets[index], target_of(index), __ATOMIC_RELEASE);
}

/* Under the lock, as all that changes a function's way. */
static void set_target(uint32_t index) {
  if (__atomic_load_n(&hook_state, __ATOMIC_RELAXED) != hook_runs) lead(index);
}

/* Formats into `error`, where there is one; macro, because the format is checked where it stands.
 */
#define SAY(error, bytes, ...) \
  ((error) != NULL && (bytes) > 0 ? (void)snprintf(error, bytes, __VA_ARGS__) : (void)0)

/* Returns whether a library is the gate itself, by whatever path it was found. */
static int is_gate(void* library) {
  return ctxb_own_symbol(library, "ctxb_gate_get") != NULL;
}

static int is_missing(uint32_t index) {
  return real[index] == NULL;
}

/* A driver that was opened and does not stand behind the gate yet. */
struct opened {
  void* library;
  const char* file;
  ctxb_gate_function functions[entry_count];
};

/* Only the first driver stands behind the gate. Another thread may have opened one meanwhile. */
static void adopt_driver(const struct opened* opened) {
  pthread_mutex_lock(&state_lock);
  const int is_first = driver_library == NULL;
  if (is_first) {
    snprintf(driver_file, sizeof driver_file, "%s", opened->file);
    memcpy(real, opened->functions, sizeof real);
    for (uint32_t i = 0; i < entry_count; ++i) set_target(i);
    __atomic_store_n(&driver_library, opened->library, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&state_lock);
  if (is_first) {
    ctxb_gate_hide_exports(is_missing);
  } else {
    dlclose(opened->library); /* this call's count only, if it is the same */
  }
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
  struct opened opened = {.library = library, .file = file};
  for (uint32_t i = 0; i < entry_count; ++i) {
    *(void**)&opened.functions[i] = ctxb_own_symbol(library, entries[i].symbol);
  }
  adopt_driver(&opened);
  return 1;
}

static void* driver(void) {
  return __atomic_load_n(&driver_library, __ATOMIC_ACQUIRE);
}

static void* open_driver(const char* file, char* error, size_t error_bytes) {
  struct attempt attempt = {error, error_bytes};
  if (driver() == NULL) {
    SAY(error, error_bytes,
        "libcuda.so.1: cannot open shared object file: No such file or directory");
    const int opened = file != NULL ? try_file(file, &attempt)
                                    : ctxb_gate_for_each_driver_file(try_file, &attempt);
    if (!opened) return NULL;
  }
  /* NVIDIA's driver stands there under the path where it was found. */
  void* wanted = file != NULL ? dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) : NULL;
  if (wanted != NULL) dlclose(wanted); /* this call's count only */
  const int nvidia = strstr(driver_file, "libcuda.so") != NULL;
  if (file != NULL ? wanted == driver() : nvidia) return driver();
  SAY(error, error_bytes, "another driver stands behind the gate already: %s", driver_file);
  return NULL;
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

/* ---- forked processes ------------------------------------------------------------------------ */

static void lock_state(void) {
  pthread_mutex_lock(&state_lock);
}

static void unlock_state(void) {
  pthread_mutex_unlock(&state_lock);
}

/* Drivers do not work in a forked process, and answer so at once. The rules would wait there for
 * locks of threads that the process does not have, so every call goes past them. */
static void forget_rules(void) {
  ctxb_gate_observe_opens(NULL, NULL);
  __atomic_store_n(&look_up_observer, NULL, __ATOMIC_RELEASE);
  memset(rule, 0, sizeof rule);
  if (__atomic_load_n(&hook_state, __ATOMIC_RELAXED) == hook_runs) hook_state = hook_done;
  for (uint32_t i = 0; driver() != NULL && i < entry_count; ++i) set_target(i);
  unlock_state();
}

static void prepare_once(void) {
  pthread_atfork(lock_state, unlock_state, forget_rules);
}

static void prepare_for_forks(void) {
  static pthread_once_t prepared = PTHREAD_ONCE_INIT;
  pthread_once(&prepared, prepare_once);
}

/* ---- the hook before the first driver -------------------------------------------------------- */

static int state_of_hook(void) {
  return __atomic_load_n(&hook_state, __ATOMIC_ACQUIRE);
}

/* Under the lock. */
static void open_way_past_hook(void) {
  for (uint32_t i = 0; driver() != NULL && i < entry_count; ++i) lead(i);
  __atomic_store_n(&hook_state, hook_done, __ATOMIC_RELEASE);
}

/* Waits until the hook has returned. A thread in a library's constructor holds the loader's lock,
 * for which the hook may be waiting, so no thread waits for ever. One that goes on disturbs nobody,
 * because no other thread has passed yet. Under the lock. */
static void wait_for_hook(void) {
  const int patience = 10; /* s */
  static int is_over = 0;
  struct timespec limit;
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += patience;
  while (!is_over && state_of_hook() == hook_runs) {
    is_over = pthread_cond_timedwait(&hook_ended, &state_lock, &limit) == ETIMEDOUT;
  }
}

static void pass_hook(void) {
  if (ctxb_before_first_driver == NULL || state_of_hook() == hook_done) return;
  prepare_for_forks();
  pthread_mutex_lock(&state_lock);
  const int is_first = state_of_hook() == hook_waits && driver_library == NULL;
  if (is_first) {
    hook_thread = pthread_self();
    __atomic_store_n(&hook_state, hook_runs, __ATOMIC_RELEASE);
  } else if (state_of_hook() == hook_runs && !pthread_equal(hook_thread, pthread_self())) {
    wait_for_hook();
  }
  pthread_mutex_unlock(&state_lock);
  if (!is_first) return;
  ctxb_before_first_driver();
  pthread_mutex_lock(&state_lock);
  open_way_past_hook();
  pthread_cond_broadcast(&hook_ended);
  pthread_mutex_unlock(&state_lock);
}

/* A call came before a broker chose the driver. It is the environment's choice then, or NVIDIA's.
 */
static void open_default_driver(void) {
  char path[PATH_MAX];
  const char* choice = secure_getenv("CTXBROKER_DRIVER");
  if (choice != NULL && strcmp(choice, "software") == 0) {
    if (find_software_device(path, sizeof path)) open_driver(path, NULL, 0);
  } else {
    open_driver(NULL, NULL, 0);
  }
}

/* Called while no driver stands behind the gate, and while the hook runs. */
ctxb_gate_function ctxb_gate_resolve(uint64_t index) {
  pass_hook();
  if (driver() == NULL) open_default_driver();
  if (driver() == NULL) return (ctxb_gate_function)answer_no_device;
  if (state_of_hook() == hook_runs) return target_of((uint32_t)index);
  return __atomic_load_n(&ctxb_gate_targets[index], __ATOMIC_ACQUIRE);
}

/* ---- what the broker is given ---------------------------------------------------------------- */

static const char* driver_path(void) {
  return driver() != NULL ? driver_file : NULL;
}

static ctxb_gate_function driver_function(uint32_t index) {
  return index < entry_count && driver() != NULL ? real[index] : NULL;
}

int ctxb_gate_is_driver(const void* library) {
  return library == driver();
}

void* ctxb_gate_drivers_own(const char* symbol) {
  return driver() != NULL ? ctxb_own_symbol(driver(), symbol) : NULL;
}

struct visit {
  void (*found)(const char* symbol, void* context);
  void* context;
};

static void visit_unknown(const char* symbol, void* context) {
  const struct visit* visit = context;
  if (!ctxb_gate_names_function(symbol)) return;
  uint32_t i = 0;
  while (i < entry_count && strcmp(entries[i].symbol, symbol) != 0) ++i;
  if (i == entry_count) visit->found(symbol, visit->context);
}

static void for_each_unknown(void (*found)(const char* symbol, void* context), void* context) {
  struct visit visit = {found, context};
  if (driver() != NULL) ctxb_each_own_symbol(driver(), visit_unknown, &visit);
}

static int claim(const void* owner) {
  prepare_for_forks();
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
  if (driver() != NULL) set_target(index);
  pthread_mutex_unlock(&state_lock);
}

static void observe_look_ups(ctxb_gate_look_up_observer observer) {
  __atomic_store_n(&look_up_observer, observer, __ATOMIC_RELEASE);
}

EXPORT const ctxb_gate* ctxb_gate_get(void) {
  static const ctxb_gate gate = {.size = sizeof(ctxb_gate),
                                 .abi = ctxb_gate_abi,
                                 .count = entry_count,
                                 .cuda_version = CTXB_FUNCTION_TABLE_CUDA,
                                 .entries = entries,
                                 .open_driver = open_driver,
                                 .driver_path = driver_path,
                                 .driver_function = driver_function,
                                 .exported_function = exported_function,
                                 .claim = claim,
                                 .install = install,
                                 .observe_look_ups = observe_look_ups,
                                 .for_each_unknown = for_each_unknown,
                                 .watched_dlsym = (ctxb_gate_function)ctxb_gate_watched_dlsym,
                                 .watched_dlvsym = (ctxb_gate_function)ctxb_gate_watched_dlvsym,
                                 .observe_opens = ctxb_gate_observe_opens,
                                 .watched_dlopen = (ctxb_gate_function)ctxb_gate_watched_dlopen};
  return &gate;
}
