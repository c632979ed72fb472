// SPDX-License-Identifier: Apache-2.0
/* What the gate library offers to the broker. The gate answers to the driver's name,
 * libcuda.so.1, and is in the process before the driver is: every function it exports jumps to the
 * driver's own, or to a rule that the broker has installed in its place.
 *
 * C, because the gate depends on nothing: it is loaded in front of every program of a host. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ctxb_gate_abi = 4 };

typedef void (*ctxb_gate_function)(void);

/* One public name of the driver. */
typedef struct ctxb_gate_entry {
  const char* symbol; /* as exported: "cuMemAlloc_v2" */
  const char* base;   /* as cuGetProcAddress knows it: "cuMemAlloc" */
  int version;        /* first CUDA version that returns it: 3020 */
  uint8_t per_thread; /* 1: for CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */
  uint8_t guarded;    /* 1: look-ups give the gate's address of it */
} ctxb_gate_entry;

/* A function that the driver has and the gate's table does not, because the driver is newer. The
 * look-up was answered with the driver's own. */
typedef enum ctxb_gate_found {
  ctxb_gate_found_unknown, /* nothing of that name is in the table */
  ctxb_gate_found_newer    /* a newer form of a function that is in the table */
} ctxb_gate_found;

/* Called for each such look-up, through cuGetProcAddress or dlsym. */
typedef void (*ctxb_gate_look_up_observer)(const char* name, ctxb_gate_found found);

/* The first is called before a tenant's library opens another, with the file and the address of the
 * call. It answers NULL where the loader's answer depends on its caller; then the loader opens it.
 * Otherwise the second is called with that answer. It returns what `open` returns for the file. */
typedef void* (*ctxb_gate_open)(const char* file, int mode);
typedef void* (*ctxb_gate_before_open)(const char* file, const void* caller);
typedef void* (*ctxb_gate_open_for)(void* answer, const char* file, int mode, ctxb_gate_open open);

/* Any thread. Lives as long as the process. */
typedef struct ctxb_gate {
  uint32_t size;
  uint32_t abi;
  uint32_t count;   /* of entries */
  int cuda_version; /* whose functions the entries are, as cuDriverGetVersion tells it: 13050 */
  const ctxb_gate_entry* entries;

  /* Puts a driver behind the gate: the file, or NVIDIA's where the system has it (NULL). Returns
   * its library, as dlopen does; NULL, with `error` filled, when it cannot be loaded, or when
   * another driver stands behind the gate already. One driver for the process's life. */
  void* (*open_driver)(const char* file, char* error, size_t error_bytes);
  /* The file behind the gate; NULL: none yet. Static text. */
  const char* (*driver_path)(void);

  /* The driver's own function; NULL when this driver lacks it, or none is open. */
  ctxb_gate_function (*driver_function)(uint32_t index);
  /* The address that the gate exports for it. */
  ctxb_gate_function (*exported_function)(uint32_t index);

  /* The first owner is the one that installs rules; 1 for it, 0 for all others. For good:
   * addresses of its rules may be in use until the process ends. */
  int (*claim)(const void* owner);
  /* Calls of a guarded function reach the rule from now on; NULL: the driver's own again. A
   * rule stands only where the driver has the function. */
  void (*install)(uint32_t index, ctxb_gate_function rule);
  void (*observe_look_ups)(ctxb_gate_look_up_observer observer);
  /* Calls `found` with each function that the driver exports and the table does not know. */
  void (*for_each_unknown)(void (*found)(const char* symbol, void* context), void* context);

  /* To stand in place of dlsym and dlvsym in a tenant's library. They answer with the gate's
   * address where the loader would give the driver's own of a guarded function, and with the
   * driver's own where the gate does not know the function. They leave everything else to the
   * loader. */
  ctxb_gate_function watched_dlsym, watched_dlvsym;

  /* To stand in place of dlopen in a tenant's library. Call observe_opens once, before that. */
  void (*observe_opens)(ctxb_gate_before_open before, ctxb_gate_open_for open_for);
  ctxb_gate_function watched_dlopen;
} ctxb_gate;

/* The one function that is not the driver's. */
const ctxb_gate* ctxb_gate_get(void);

/* Defined by a library that was preloaded with the gate; otherwise it is null. The loader finds it,
 * because constructors of other libraries may call the driver before one of that library runs.
 *
 * The gate calls it once, on the thread that makes the process's first call of a driver function,
 * before any driver function runs. If a driver stands behind the gate by then, it is not called.
 * Other threads wait until it has returned. What it calls itself goes to the driver, which it may
 * open. A forked process calls it if the first process has not. */
__attribute__((weak)) void ctxb_before_first_driver(void);

#ifdef __cplusplus
}
#endif
