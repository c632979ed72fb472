/*
 * The broker for hosts written in C, or that want a C boundary: tenants for plug-ins with a format
 * of their own, their guards and leases. The C++ headers (broker.hpp, tenant.hpp) say more about
 * what each thing means; hosts that run plug-ins of the ctxbroker ABI use those.
 *
 *   ctxb_broker* broker = NULL;
 *   ctxb_tenant* tenant = NULL;
 *   ctxb_guard guard;
 *   if (ctxb_broker_open(NULL, &broker) != CTXB_OK) puts(ctxb_last_error());
 *   ctxb_tenant_open(broker, "filter", NULL, &tenant);
 *   if (ctxb_tenant_enter(tenant, 0, "render", &guard) == CTXB_OK) {
 *     render();               // the tenant's context is current
 *     ctxb_guard_leave(&guard);
 *   }
 *   ctxb_tenant_close(tenant);
 *   ctxb_broker_close(broker);
 *
 * Every function that returns a ctxb_status leaves a sentence for ctxb_last_error when that is not
 * CTXB_OK, and gives a null handle then. No exception leaves one. Handles are null or alive: a null
 * handle is CTXB_ERROR_INVALID_ARGUMENT, a closed one must not be used. Any thread may enter and
 * leave; all else on one broker is serialised by the caller.
 *
 * Compiles as C11 and C++11, and needs no CUDA header: a CUcontext or CUstream is a void*, a
 * CUdeviceptr a uint64_t.
 */
#ifndef CTXBROKER_HOST_H
#define CTXBROKER_HOST_H

#include <stdint.h>

#include "ctxbroker/plugin.h" /* ctxb_status and its codes */

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ctxb_broker ctxb_broker;
typedef struct ctxb_tenant ctxb_tenant;
typedef struct ctxb_library ctxb_library;

/* ---- Broker ---------------------------------------------------------------------------------*/

/* One line about what happened. `severity` is CTXB_LOG_*; the texts are valid during the call.
 * Called by the thread on which it happened, several at once; must not call the broker. */
typedef void (*ctxb_record_function)(void* data, uint32_t severity, uint32_t tenant,
                                     const char* tenant_name, const char* topic, const char* text);

typedef struct ctxb_broker_options {
  uint32_t size;          /* sizeof(ctxb_broker_options) */
  uint32_t ready_green;   /* green contexts made ahead, per device in use */
  uint32_t ready_private; /* private contexts made ahead */
  uint32_t reserved;      /* 0 */
  uint64_t ready_bytes;   /* device memory that they may take; 0: 64 MiB, no private one fits */
  const char* host_name;  /* null: "host" */
  const char* driver;     /* "auto", "nvidia", "software"; null: CTXBROKER_DRIVER, else "auto" */
  ctxb_record_function record; /* may be null */
  void* record_data;
  /* What users decide for plug-ins by their ids (policy.hpp, policy.schema.json): a file's path, or
   * the JSON text itself; null: none. One of the two. What is wrong in it, and where, is the
   * error's text; nothing is opened then. */
  const char* policy_file;
  const char* policy_text;
  uint32_t without_gate; /* 1: no gate between plug-ins and the driver */
} ctxb_broker_options;

/* `options` may be null. */
CTXB_EXPORT ctxb_status ctxb_broker_open(const ctxb_broker_options* options, ctxb_broker** broker);
/* CTXB_ERROR_WRONG_STATE while it has tenants; the broker is then still open. */
CTXB_EXPORT ctxb_status ctxb_broker_close(ctxb_broker* broker);

CTXB_EXPORT uint32_t ctxb_broker_device_count(const ctxb_broker* broker); /* 0 for null */

#define CTXB_GATE_NONE 0
#define CTXB_GATE_BEFORE_DRIVER 1 /* whoever asks for the driver gets the gate */
#define CTXB_GATE_LATE \
  2 /* the driver was there first: tenants' own libraries are led to the gate */

typedef struct ctxb_gate_info {
  uint32_t size;      /* sizeof(ctxb_gate_info), filled by the caller */
  uint32_t in_force;  /* 1: CTXB_GATE_BEFORE_DRIVER or CTXB_GATE_LATE */
  const char* reason; /* why not; or how it came, and when late what it cannot hold; valid until the
                         broker's close */
  uint32_t mode;      /* CTXB_GATE_* */
  uint32_t reserved;  /* 0 */
  /* Profilers, checkers, debuggers and interposers that were in the process at the broker's
   * opening: what each is, and what follows; then a null. Valid until the broker's close. */
  const char* const* tools;
} ctxb_gate_info;

/* Whether the gate stands between plug-ins and the driver. It protects best when it is there before
 * the driver: open the broker before anything else loads that. */
CTXB_EXPORT ctxb_status ctxb_broker_gate(const ctxb_broker* broker, ctxb_gate_info* info);

/* Between the two nothing is made in the background. Nested. */
CTXB_EXPORT ctxb_status ctxb_broker_begin_realtime(ctxb_broker* broker);
CTXB_EXPORT ctxb_status ctxb_broker_end_realtime(ctxb_broker* broker);

/* ---- Leases ---------------------------------------------------------------------------------*/
#define CTXB_STATE_READY 0
#define CTXB_STATE_LOST 1   /* the next use makes another */
#define CTXB_STATE_ENDED 2  /* CUDA has ended in this process */
#define CTXB_STATE_ZOMBIE 3 /* work on it does not end */

typedef struct ctxb_lease_info {
  uint32_t size; /* sizeof(ctxb_lease_info), filled by the caller */
  int32_t device;
  uint32_t kind;            /* CTXB_LEASE_*: what was granted */
  uint32_t multiprocessors; /* that it may use */
  uint32_t state;           /* CTXB_STATE_* */
  uint32_t reserved;
  uint64_t generation; /* which life of the context this is; only grows */
  void* context;       /* CUcontext; borrowed, while this generation is in force */
  const char* tenant;  /* its name; borrowed, until the tenant is closed */
} ctxb_lease_info;

/* ---- Tenants --------------------------------------------------------------------------------*/
typedef struct ctxb_tenant_options {
  uint32_t size;               /* sizeof(ctxb_tenant_options) */
  uint32_t lease;              /* CTXB_LEASE_AUTO, _SHARED, _PRIVATE or _GREEN */
  uint32_t multiprocessors;    /* green: at least so many of its own; 0: all, reserved for nobody */
  uint32_t per_thread_streams; /* 1: its code uses CU_STREAM_PER_THREAD */
  uint32_t unload_at_close;    /* 1: its libraries leave the process with it */
  uint32_t reserved;           /* 0 */
  /* Device memory that its code may hold through the driver; needs the gate. 0: as the policy
   * says, else no limit. */
  uint64_t driver_memory_budget;
} ctxb_tenant_options;

/* `options` may be null. `name` is for people and is copied. */
CTXB_EXPORT ctxb_status ctxb_tenant_open(ctxb_broker* broker, const char* name,
                                         const ctxb_tenant_options* options, ctxb_tenant** tenant);
/* Gives back all that the tenant holds; its libraries are dead. CTXB_ERROR_WRONG_STATE while a
 * thread is inside; the tenant is then still open. */
CTXB_EXPORT ctxb_status ctxb_tenant_close(ctxb_tenant* tenant);

CTXB_EXPORT ctxb_status ctxb_tenant_lease(ctxb_tenant* tenant, int32_t device,
                                          ctxb_lease_info* info);
/* Tells the broker what a driver call of the code inside returned (a CUresult), for it sees its own
 * calls alone; the lease's CTXB_STATE_*, LOST where there is none yet. [any] */
CTXB_EXPORT uint32_t ctxb_tenant_report_status(ctxb_tenant* tenant, int32_t device, int32_t driver_status);
/* How often its code broke the rules, and, with the gate in force, called a guarded function of the
 * driver ("cuMemAlloc_v2"; null: all of them). 0 for null. [any] for strikes */
CTXB_EXPORT uint64_t ctxb_tenant_strikes(const ctxb_tenant* tenant);
CTXB_EXPORT uint64_t ctxb_tenant_guarded_calls(const ctxb_tenant* tenant, const char* function);
/* What its code made through the driver and holds now: things of a kind ("stream", "device memory";
 * null: of all kinds) and the bytes of device memory that they are. Either pointer may be null. */
CTXB_EXPORT ctxb_status ctxb_tenant_held(const ctxb_tenant* tenant, const char* kind,
                                         uint64_t* things, uint64_t* bytes);

typedef struct ctxb_wait_totals {
  uint32_t size; /* sizeof(ctxb_wait_totals), filled by the caller */
  uint32_t reserved;
  uint64_t count; /* of calls of its code that wait for the device (synchronise, cuMemFree) */
  double seconds; /* that threads were kept in them, all together */
  double longest_seconds;
} ctxb_wait_totals;
CTXB_EXPORT ctxb_status ctxb_tenant_waits(const ctxb_tenant* tenant, ctxb_wait_totals* waits);
/* Gives up the life of the lease's context; the next use makes another. */
CTXB_EXPORT ctxb_status ctxb_tenant_force_loss(ctxb_tenant* tenant, int32_t device,
                                               const char* reason);

/* Loads a library under guard. The handle belongs to the tenant. */
CTXB_EXPORT ctxb_status ctxb_tenant_adopt(ctxb_tenant* tenant, const char* path,
                                          ctxb_library** library);
CTXB_EXPORT void* ctxb_library_symbol(const ctxb_library* library, const char* name); /* or null */

/* Device memory and streams, in the tenant's ledger. */
CTXB_EXPORT ctxb_status ctxb_tenant_allocate(ctxb_tenant* tenant, int32_t device, uint64_t bytes,
                                             uint64_t* address);
CTXB_EXPORT ctxb_status ctxb_tenant_release(ctxb_tenant* tenant, uint64_t address);
CTXB_EXPORT ctxb_status ctxb_tenant_create_stream(ctxb_tenant* tenant, int32_t device, void** stream);
CTXB_EXPORT ctxb_status ctxb_tenant_destroy_stream(ctxb_tenant* tenant, void* stream);

/* ---- Guards ---------------------------------------------------------------------------------*/

/* On the caller's stack from enter to leave; its content is the broker's. */
typedef struct ctxb_guard {
  void* reserved[64]; /* with room for it to grow: its size is part of the ABI */
} ctxb_guard;

/* Makes the lease's context current on the calling thread. `doing` names what runs inside, for
 * strikes: static text, or null. Guards of a thread nest. After an error nothing was entered. */
CTXB_EXPORT ctxb_status ctxb_tenant_enter(ctxb_tenant* tenant, int32_t device, const char* doing,
                                          ctxb_guard* guard);
/* Undoes all that was done to the thread's context stack since. On the same thread. */
CTXB_EXPORT void ctxb_guard_leave(ctxb_guard* guard);

/* Why the last function that failed on this thread did: one sentence; "" when none has. Valid until
 * the next one fails on this thread. */
CTXB_EXPORT const char* ctxb_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
