// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * The broker for hosts that are written in C, or that want a C boundary. It has everything that C++
 * tenants have (broker.hpp, tenant.hpp). It includes host_memory.h, which has tenants' device
 * memory, and host_graph.h, which has what plug-ins of the ctxbroker ABI need: libraries,
 * instances, graphs and jobs.
 *
 *     ctxb_broker* broker = NULL;
 *     ctxb_tenant* tenant = NULL;
 *     ctxb_guard guard;
 *     if (ctxb_broker_open(NULL, &broker) != CTXB_OK) puts(ctxb_last_error());
 *     ctxb_tenant_open(broker, "filter", NULL, &tenant);
 *     if (ctxb_tenant_enter(tenant, 0, "render", &guard) == CTXB_OK) {
 *       render();  // the tenant's context is current
 *       ctxb_guard_leave(&guard);
 *     }
 *     ctxb_tenant_close(tenant);
 *     ctxb_broker_close(broker);
 *
 * ERRORS. A function that returns a ctxb_status returns CTXB_OK or an error (CTXB_ERROR_*). After
 * an error, ctxb_last_error says why in one sentence, and results through pointers are 0 or null.
 * No exception leaves a function.
 *
 * HANDLES. A null handle is allowed: functions that return a ctxb_status answer with
 * CTXB_ERROR_INVALID_ARGUMENT. A closed handle must not be used.
 *
 * THREADS. Any thread may call a function that is marked [any], several at once. Call all other
 * functions on one broker and its tenants one at a time.
 *
 * STRUCTS begin with `size`, their size in bytes, which the caller fills in: sizeof the struct. The
 * caller sets members that it does not use to 0. Later versions append members. If the caller's
 * header is older, the broker takes members that the header lacks as 0, and does not write them. If
 * the caller's header is newer, and a member that the broker does not know is not 0, the call
 * fails.
 *
 * TEXT is UTF-8 and ends with 0. Text that goes into a function is copied where it is kept.
 *
 * The header compiles as C11 and C++11. It needs no CUDA header: a CUcontext or a CUstream is a
 * void*, a CUdeviceptr is a uint64_t, a CUresult is an int32_t. A `device` is a CUDA device
 * ordinal.
 */
#ifndef CTXBROKER_HOST_H
#define CTXBROKER_HOST_H

#include <stdint.h>

#include "ctxbroker/plugin.h" /* ctxb_status, CTXB_LEASE_*, CTXB_LOG_*, CTXB_LOSS_* */

#ifdef __cplusplus
extern "C" {
#endif

/** An open broker. */
typedef struct ctxb_broker ctxb_broker;
/** An open tenant, or a handle of the host's own tenant. */
typedef struct ctxb_tenant ctxb_tenant;
/** A library that was loaded for a tenant. It belongs to the tenant. */
typedef struct ctxb_library ctxb_library;

/** Returns the version of the loaded library, "0.1.0" for example. Static text. [any] */
CTXB_EXPORT const char* ctxb_version(void);

/** Returns one sentence that says why the last call that failed on this thread did so, or "" when
 * none has failed. It is valid until the next call fails on this thread. [any] */
CTXB_EXPORT const char* ctxb_last_error(void);

/* ---- Callbacks ------------------------------------------------------------------------------*/

/** Takes one record of the broker's log, on the thread on which the event happens. Several threads
 * may call it at once. It must not call the broker.
 *
 * @param data         ctxb_broker_options.record_data.
 * @param severity     CTXB_LOG_*.
 * @param tenant       whom it concerns: the number of a tenant; 0 is the host.
 * @param tenant_name  the tenant's name. The texts are valid during the call.
 * @param topic        "driver", "lease", "strike", ...
 * @param text         one line. */
typedef void (*ctxb_record_function)(void* data, uint32_t severity, uint32_t tenant,
                                     const char* tenant_name, const char* topic, const char* text);

/** Takes a piece of a text, or of a plug-in's state, that the broker writes, in order.
 *
 * @param data   what was passed to the function that writes.
 * @param text   the piece. It is valid during the call and does not end with 0.
 * @param bytes  its length.
 * @return CTXB_OK. An error ends the writing, and the function that writes returns that error. */
typedef ctxb_status (*ctxb_text_function)(void* data, const char* text, uint64_t bytes);

/** One generation of a tenant's lease that was lost. Its streams, modules and addresses are dead.
 */
typedef struct ctxb_lease_loss {
  uint32_t size;         /**< Its size in the broker's header. */
  uint32_t tenant;       /**< The tenant's number. */
  int32_t device;        /**< The lease's device. */
  uint32_t reason;       /**< CTXB_LOSS_*. */
  uint64_t generation;   /**< The generation that was lost. */
  int32_t driver_status; /**< The CUresult that stands for the reason, or 0. */
  uint32_t reserved;     /**< 0. */
  const char* text;      /**< The same in one sentence. Valid during the call. */
} ctxb_lease_loss;

/** Takes one loss. ctxb_broker_poll calls it on the thread that calls ctxb_broker_poll, without a
 * lock held, so it may use the broker and its tenants. It must not close the broker.
 *
 * @param data  ctxb_tenant_options.on_loss_data.
 * @param loss  valid during the call. */
typedef void (*ctxb_loss_function)(void* data, const ctxb_lease_loss* loss);

/* ---- Broker ---------------------------------------------------------------------------------*/

/** What a tenant gets. */
typedef struct ctxb_tenant_options {
  uint32_t size;               /**< sizeof(ctxb_tenant_options). */
  uint32_t lease;              /**< CTXB_LEASE_AUTO, _SHARED, _PRIVATE or _GREEN. */
  uint32_t multiprocessors;    /**< Green: at least this many, reserved. 0: all, none reserved.
                                * Other leases: 0. */
  uint32_t per_thread_streams; /**< 1: its code uses CU_STREAM_PER_THREAD; excludes green. */
  /** 1: close unloads its libraries, unless the driver may still call functions of them. Otherwise
   * they stay loaded. */
  uint32_t unload_at_close;
  uint32_t memory; /**< Source of its device memory and pinned memory: CTXB_MEMORY_*. */
  /** Device memory, in bytes, that its code may hold through its own driver calls. This needs the
   * gate. 0: the policy's limit, or none if the policy sets none. */
  uint64_t driver_memory_budget;
  ctxb_loss_function
      on_loss;        /**< Called by ctxb_broker_poll for each lost generation. May be null. */
  void* on_loss_data; /**< Passed to on_loss. */
  /** What else its code may hold through its own driver calls. This needs the gate. 0: as the
   * policy says, or the default. UINT64_MAX: no limit. */
  uint64_t
      pinned_memory_limit; /**< Pinned host memory, in bytes. Default: half of the machine's. */
  uint64_t stream_limit;   /**< Default: 4,096. */
  uint64_t event_limit;    /**< Default: 65,536. */
  uint64_t graph_limit;    /**< Graphs and executable graphs. Default: 16,384. */
  uint64_t module_limit;   /**< Modules and libraries. Default: 16,384. */
  uint64_t context_limit;  /**< Contexts and green contexts. Default: 64. */
  /** Pinned memory, in bytes, that its pool (CTXB_MEMORY_POOL) takes from the driver when a lease
   * is made, and keeps. 0: the policy's size, or none if the policy sets none. */
  uint64_t pinned_ahead;
} ctxb_tenant_options;

/** How to open a broker. All members may be 0. */
typedef struct ctxb_broker_options {
  uint32_t size;            /**< sizeof(ctxb_broker_options). */
  uint32_t ready_green;     /**< Green contexts to create ahead of need, on each device in use. */
  uint32_t ready_private;   /**< Private contexts to create ahead of need, on each such device. */
  uint32_t without_gate;    /**< 1: no gate between the tenants' code and the driver. */
  uint64_t ready_bytes;     /**< Device memory for contexts made ahead. 0: 64 MiB. */
  const char* host_name;    /**< Null: "host". */
  const char* host_version; /**< Null: "0". */
  const char* driver;       /**< "auto", "nvidia", "software". Null: CTXBROKER_DRIVER, or "auto". */
  const char* software_device; /**< Its library file. Null: the one beside the broker's library. */
  ctxb_record_function record; /**< Takes the log. May be null. */
  void* record_data;           /**< Passed to record. */
  /** What users decide for tenants by their names, as JSON (docs/policy.schema.json): a file's
   * path, or the text itself in policy_text. Set at most one of them. If the JSON has a mistake,
   * ctxb_broker_open fails, and the error's text says where the mistake is. */
  const char* policy_file;
  const char* policy_text;         /**< See policy_file. */
  uint32_t job_timeout_ms;         /**< A job that takes longer is hung, in ms. 0: no limit. */
  uint32_t end_timeout_ms;         /**< How long close waits for each stream, in ms. 0: 2000. */
  const ctxb_tenant_options* host; /**< What the host's own tenant gets. May be null. */
} ctxb_broker_options;

/** Loads a driver, initialises it and opens a broker. It creates nothing on a device. While
 * constructors or destructors of any library run on another thread, it waits for the system's
 * loader without a limit, as dlopen does.
 *
 * @param options  may be null.
 * @param broker   gets the broker, which ctxb_broker_close ends.
 * @return CTXB_ERROR_INVALID_ARGUMENT for options that are not allowed; CTXB_ERROR_UNAVAILABLE
 *         without the driver or a device; CTXB_ERROR_DRIVER. */
CTXB_EXPORT ctxb_status ctxb_broker_open(const ctxb_broker_options* options, ctxb_broker** broker);

/** Closes a broker.
 *
 * @return CTXB_ERROR_WRONG_STATE while it has tenants, libraries, instances or graphs. The broker
 *         is then still open. */
CTXB_EXPORT ctxb_status ctxb_broker_close(ctxb_broker* broker);

#define CTXB_DRIVER_NVIDIA 1   /**< NVIDIA's driver. */
#define CTXB_DRIVER_SOFTWARE 2 /**< The software device. */

/** The driver in use. */
typedef struct ctxb_driver_info {
  uint32_t size;      /**< sizeof(ctxb_driver_info). */
  uint32_t kind;      /**< CTXB_DRIVER_*. */
  int32_t version;    /**< As cuDriverGetVersion reports it: 13000 is 13.0. */
  uint32_t reserved;  /**< 0. */
  const char* path;   /**< The loaded file. The texts are valid until the broker's close. */
  const char* reason; /**< Why this driver. */
} ctxb_driver_info;

/** Tells which driver the broker works on. */
CTXB_EXPORT ctxb_status ctxb_broker_driver(const ctxb_broker* broker, ctxb_driver_info* info);

/** Returns the number of devices, at least 1; 0 without a driver and for null. [any] */
CTXB_EXPORT uint32_t ctxb_broker_device_count(const ctxb_broker* broker);

/** One device. */
typedef struct ctxb_device_info {
  uint32_t size;            /**< sizeof(ctxb_device_info). */
  int32_t device;           /**< Its ordinal. */
  const char* name;         /**< "NVIDIA H200". Valid until the broker's close. */
  uint32_t compute_major;   /**< Compute capability 9.0: 9. */
  uint32_t compute_minor;   /**< Compute capability 9.0: 0. */
  uint32_t multiprocessors; /**< Streaming multiprocessors (SMs). */
  uint32_t in_use;          /**< 1: the broker uses it. 0: the broker has created nothing on it. */
  uint32_t shielded;        /**< 1: the driver refuses to destroy its primary context. */
  uint32_t mps;             /**< 1: the process uses it through an MPS server, so that a fault of
                                 one of the server's clients ends CUDA in all of them. */
  uint64_t memory_bytes;    /**< Device memory, in bytes. */
  uint32_t memory_pools;    /**< 1: the driver has memory pools on it: see CTXB_MEMORY_POOL. */
  uint32_t pinned_pools;    /**< 1: so has pinned host memory near it. */
} ctxb_device_info;

/** Describes a device. [any]
 *
 * @return CTXB_ERROR_UNAVAILABLE when there is no such device. */
CTXB_EXPORT ctxb_status ctxb_broker_device(const ctxb_broker* broker, int32_t device,
                                           ctxb_device_info* info);

/** Retains a device's primary context and raises the shield there. The first lease on the device
 * does that too. [any]
 *
 * @return CTXB_ERROR_UNAVAILABLE when there is no such device, or when the driver waits for work
 *         that does not end within ctxb_broker_options.end_timeout_ms; CTXB_ERROR_DRIVER,
 *         CTXB_ERROR_OUT_OF_DEVICE_MEMORY, CTXB_ERROR_CONTEXT_LOST. */
CTXB_EXPORT ctxb_status ctxb_broker_use_device(ctxb_broker* broker, int32_t device);

#define CTXB_GATE_NONE 0          /**< There is no gate. */
#define CTXB_GATE_BEFORE_DRIVER 1 /**< Everybody who asks for the driver gets the gate. */
#define CTXB_GATE_LATE 2          /**< Only the tenants' own libraries call the gate. */

/** What the gate can do in this process. */
typedef struct ctxb_gate_info {
  uint32_t size;      /**< sizeof(ctxb_gate_info). */
  uint32_t in_force;  /**< 1: mode is CTXB_GATE_BEFORE_DRIVER or CTXB_GATE_LATE. */
  uint32_t mode;      /**< CTXB_GATE_*. */
  uint32_t reserved;  /**< 0. */
  const char* reason; /**< Why the gate is not in force, or how it came into the process. */
  /** One line for each profiler, checker, debugger or interposer that was in the process when the
   * broker was opened, then a null. These and reason are valid until the broker's close. */
  const char* const* tools;
} ctxb_gate_info;

/** Tells whether the gate stands between the tenants' code and the driver. It protects best when it
 * comes into the process before the driver, so open the broker before anything loads the driver. */
CTXB_EXPORT ctxb_status ctxb_broker_gate(const ctxb_broker* broker, ctxb_gate_info* info);

/** Begins a real-time session, in which plug-ins should not delay each other's work. The broker
 * creates no ready contexts, and it destroys no context and unloads no module on its own. It counts
 * and times the calls with which a tenant holds up its neighbours. A record of the topic "realtime"
 * names these calls, at most once a second for each tenant. A policy can refuse them. Calls nest.
 * [any] */
CTXB_EXPORT ctxb_status ctxb_broker_begin_realtime(ctxb_broker* broker);
/** Ends what the matching ctxb_broker_begin_realtime began. [any]
 *
 * @return CTXB_ERROR_WRONG_STATE when none is open. */
CTXB_EXPORT ctxb_status ctxb_broker_end_realtime(ctxb_broker* broker);

/** Waits until the ready contexts exist, as far as their budget allows. It does not wait between
 * ctxb_broker_begin_realtime and ctxb_broker_end_realtime. [any]
 *
 * @param ready  gets 1 when nothing is left to create, else 0. May be null. */
CTXB_EXPORT ctxb_status ctxb_broker_wait_until_ready(ctxb_broker* broker, uint32_t* ready);

/** Does the work that belongs on the main thread: calls the tenants' on_loss, and destroys private
 * contexts that were lost and that nothing can use any more. Call it regularly; it is cheap when
 * there is nothing to do. */
CTXB_EXPORT ctxb_status ctxb_broker_poll(ctxb_broker* broker);

/** Writes what every tenant used so far and holds now, as one JSON object (ctxbroker.metrics/1).
 *
 * @param write  takes the text.
 * @param data   passed to write. */
CTXB_EXPORT ctxb_status ctxb_broker_write_metrics(const ctxb_broker* broker,
                                                  ctxb_text_function write, void* data);

/** What was written of a timeline. */
typedef struct ctxb_timeline_summary {
  uint32_t size;     /**< sizeof(ctxb_timeline_summary). */
  uint32_t reserved; /**< 0. */
  uint64_t spans;    /**< Spans in the text, the device's included. */
  uint64_t dropped;  /**< Spans that did not fit into memory. */
  uint64_t threads;  /**< Threads that recorded something. */
} ctxb_timeline_summary;

/** Begins to record the timeline, of which a process has one.
 *
 * @param memory_bytes  memory for it, 128 bytes a span. 0: 64 MiB.
 * @return CTXB_ERROR_WRONG_STATE while one is recorded; CTXB_ERROR_INVALID_ARGUMENT for too little
 *         memory. */
CTXB_EXPORT ctxb_status ctxb_broker_start_timeline(ctxb_broker* broker, uint64_t memory_bytes);
/** Ends recording. What was recorded stays until the next start. It does nothing while nothing is
 * recorded. */
CTXB_EXPORT ctxb_status ctxb_broker_stop_timeline(ctxb_broker* broker);
/** Ends recording and writes a file that Perfetto and chrome://tracing open. After an error, the
 * file is as it was before.
 *
 * @param path     the file.
 * @param summary  may be null.
 * @return CTXB_ERROR_WRONG_STATE when nothing was recorded; CTXB_ERROR when the file cannot be
 *         written, or its name is empty. */
CTXB_EXPORT ctxb_status ctxb_broker_write_timeline(ctxb_broker* broker, const char* path,
                                                   ctxb_timeline_summary* summary);
/** Does the same, but passes the text to a callback.
 *
 * @param write    takes the text.
 * @param data     passed to write.
 * @param summary  may be null. */
CTXB_EXPORT ctxb_status ctxb_broker_send_timeline(ctxb_broker* broker, ctxb_text_function write,
                                                  void* data, ctxb_timeline_summary* summary);

/* ---- Tenants --------------------------------------------------------------------------------*/

/** Opens a tenant.
 *
 * @param name     what records call it, and the id under which a policy knows it. It must not be
 *                 empty, or "host", which stands for all code that belongs to no tenant.
 * @param options  may be null.
 * @param tenant   gets the tenant, which ctxb_tenant_close ends. */
CTXB_EXPORT ctxb_status ctxb_tenant_open(ctxb_broker* broker, const char* name,
                                         const ctxb_tenant_options* options, ctxb_tenant** tenant);

/** Gets a handle of the host's own tenant. ctxb_broker_options.host says what the tenant gets. All
 * handles are of the same tenant, and closing the last one ends it.
 *
 * @param tenant  gets the handle, which ctxb_tenant_close ends. */
CTXB_EXPORT ctxb_status ctxb_broker_host(ctxb_broker* broker, ctxb_tenant** tenant);

/** Gives back everything that the tenant holds, and ends the handle. Its ctxb_library handles are
 * then dead. What hung work may still use is given back when that work ends.
 *
 * @return CTXB_ERROR_WRONG_STATE while a thread is inside, or a graph has its memory. The tenant is
 *         then still open. */
CTXB_EXPORT ctxb_status ctxb_tenant_close(ctxb_tenant* tenant);

/** Returns the tenant's number; 0 for the host, and for null. [any] */
CTXB_EXPORT uint32_t ctxb_tenant_id(const ctxb_tenant* tenant);
/** Returns the tenant's name, or "" for null. Valid until its close. [any] */
CTXB_EXPORT const char* ctxb_tenant_name(const ctxb_tenant* tenant);

/* ---- Leases ---------------------------------------------------------------------------------*/

#define CTXB_STATE_READY 0 /**< It can be used. */
#define CTXB_STATE_LOST 1  /**< Its context is gone. The next use creates a new one. */
#define CTXB_STATE_ENDED 2 /**< CUDA has ended in this process. */
#define CTXB_STATE_HUNG 3  /**< Its work exceeded its timeout. It takes no new work. */

/** A lease as it was at one moment. */
typedef struct ctxb_lease_info {
  uint32_t size;                  /**< sizeof(ctxb_lease_info). */
  int32_t device;                 /**< Its device. */
  uint32_t kind;                  /**< CTXB_LEASE_*: what was granted. */
  uint32_t multiprocessors;       /**< How many its work can use. */
  uint32_t asked_kind;            /**< CTXB_LEASE_*: what was asked for. */
  uint32_t asked_multiprocessors; /**< What was asked for; 0: no number. */
  uint32_t state;                 /**< CTXB_STATE_*. */
  uint32_t reserved;              /**< 0. */
  uint64_t generation; /**< The number of its context. A later context has a larger number. */
  void* context; /**< The CUcontext. Never destroy it. Valid while the generation is in force. */
  const char* tenant; /**< The tenant's name. Valid until its close. */
  const char* reason; /**< Why this kind was granted. Valid until the tenant's close. */
} ctxb_lease_info;

/** Describes the tenant's lease on a device, and creates it at the first use.
 *
 * @return CTXB_ERROR_UNAVAILABLE when there is no such device or no such lease;
 *         CTXB_ERROR_OUT_OF_DEVICE_MEMORY, CTXB_ERROR_CONTEXT_LOST, CTXB_ERROR_DRIVER. */
CTXB_EXPORT ctxb_status ctxb_tenant_lease(ctxb_tenant* tenant, int32_t device,
                                          ctxb_lease_info* info);

/** Tells the broker the status that the tenant's code got from a driver call. By itself, the
 * broker sees only its own calls, and guarded calls of the tenant's libraries. [any]
 *
 * @param driver_status  a CUresult.
 * @return the lease's CTXB_STATE_*; CTXB_STATE_LOST when there is no lease. */
CTXB_EXPORT uint32_t ctxb_tenant_report_status(ctxb_tenant* tenant, int32_t device,
                                               int32_t driver_status);

/** Gives up the context of the tenant's lease, as if it were lost. The next use creates a new one.
 *
 * @param reason  one sentence for the log.
 * @return CTXB_ERROR_INVALID_ARGUMENT when the tenant has no lease there. */
CTXB_EXPORT ctxb_status ctxb_tenant_force_loss(ctxb_tenant* tenant, int32_t device,
                                               const char* reason);

/** Lets kernels on `device` use the tenant's memory on `peer` by its address, until the tenant
 * ends. Copies between devices do not need it.
 *
 * @return CTXB_ERROR_UNAVAILABLE when the devices cannot reach each other; else as
 *         ctxb_tenant_lease. */
CTXB_EXPORT ctxb_status ctxb_tenant_enable_peer_access(ctxb_tenant* tenant, int32_t device,
                                                       int32_t peer);

/* ---- Libraries and streams of a tenant; host_memory.h has the memory -------------------------*/

/** Loads a library for the tenant. Its constructors run inside a guard. Its code then counts as the
 * tenant's, also if it was in the process before. If a static constructor throws, the process ends
 * with the library's name, because the system's loader cannot go on.
 *
 * @param path     the file.
 * @param library  gets the library. It belongs to the tenant.
 * @return CTXB_ERROR_UNAVAILABLE for a file that is not there; CTXB_ERROR when the system's loader
 *         refuses it, a pattern of a policy gives it to another tenant, or it serves the whole
 *         process, as the C library and the driver do. If another tenant uses the library too, the
 *         call succeeds, the library belongs to neither, and a record says so. */
CTXB_EXPORT ctxb_status ctxb_tenant_adopt(ctxb_tenant* tenant, const char* path,
                                          ctxb_library** library);

#define CTXB_ADOPT_LAZY 1   /**< Functions are resolved at their first call (RTLD_LAZY). */
#define CTXB_ADOPT_GLOBAL 2 /**< Later libraries find its symbols (RTLD_GLOBAL). */

/** Does the same as ctxb_tenant_adopt, which resolves all functions now and shows the library's
 * symbols to no other library.
 *
 * @param flags  CTXB_ADOPT_*, combined with |, or 0. */
CTXB_EXPORT ctxb_status ctxb_tenant_adopt_with(ctxb_tenant* tenant, const char* path,
                                               uint32_t flags, ctxb_library** library);
/** Returns the address of an exported symbol, or null when there is none. ctxb_last_error tells why
 * if the library is dead, or library or name is null. While constructors or destructors of any
 * library run on another thread, it waits for the system's loader without a limit, as dlsym
 * does. */
CTXB_EXPORT void* ctxb_library_symbol(const ctxb_library* library, const char* name);

/** Creates a stream that does not synchronise with the default stream. The tenant holds it until
 * ctxb_tenant_destroy_stream or close.
 *
 * @param stream  gets the CUstream.
 * @return as ctxb_tenant_lease. */
CTXB_EXPORT ctxb_status ctxb_tenant_create_stream(ctxb_tenant* tenant, int32_t device,
                                                  void** stream);
/** Destroys a stream. Work in it still completes.
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT when the tenant does not hold it. */
CTXB_EXPORT ctxb_status ctxb_tenant_destroy_stream(ctxb_tenant* tenant, void* stream);

/* ---- What a tenant's code did ---------------------------------------------------------------*/

/** Returns how often the tenant's code broke the rules; 0 for null. [any] */
CTXB_EXPORT uint64_t ctxb_tenant_strikes(const ctxb_tenant* tenant);

/** Returns how often the tenant's code called a guarded driver function. It needs the gate.
 *
 * @param function  "cuMemAlloc_v2" for example; null for all of them together.
 * @return 0 for a null tenant, and without the gate. Also 0 for a function that is not guarded;
 * then ctxb_last_error says so. */
CTXB_EXPORT uint64_t ctxb_tenant_guarded_calls(const ctxb_tenant* tenant, const char* function);

/** Counts the resources that the tenant's code made through its own driver calls and holds now. It
 * needs the gate.
 *
 * @param kind    "stream", "device memory", ...; null for all kinds together.
 * @param things  gets how many. It or bytes may be null.
 * @param bytes   gets the bytes of device memory that they take.
 * @return CTXB_ERROR_INVALID_ARGUMENT for a kind that there is not. The error's text names all. */
CTXB_EXPORT ctxb_status ctxb_tenant_held(const ctxb_tenant* tenant, const char* kind,
                                         uint64_t* things, uint64_t* bytes);

/** Calls of a tenant's code that waited for the device: synchronise, cuMemFree, ... */
typedef struct ctxb_wait_totals {
  uint32_t size;          /**< sizeof(ctxb_wait_totals). */
  uint32_t reserved;      /**< 0. */
  uint64_t count;         /**< How many. */
  double seconds;         /**< The time that all threads together spent in them. */
  double longest_seconds; /**< The longest one. */
} ctxb_wait_totals;

/** Tells how long the tenant's code waited for the device. It needs the gate. */
CTXB_EXPORT ctxb_status ctxb_tenant_waits(const ctxb_tenant* tenant, ctxb_wait_totals* waits);

/** Calls that held up a tenant's neighbours in real-time sessions. */
typedef struct ctxb_realtime_totals {
  uint32_t size;          /**< sizeof(ctxb_realtime_totals). */
  uint32_t reserved;      /**< 0. */
  uint64_t count;         /**< Calls that were made, without those that were refused. */
  uint64_t refused;       /**< Calls that the policy refused. */
  double seconds;         /**< The time that all threads together spent in them. */
  double longest_seconds; /**< The longest one. */
} ctxb_realtime_totals;

/** Counts the calls for a tenant that held up its neighbours: see ctxb_broker_begin_realtime.
 * Counting the calls of its code needs the gate.
 *
 * @param call    a function of the driver without a version ("cuMemAlloc"), or a call of the host
 *                or of the broker ("create", "load module"); null for all of them together. If one
 *                of these calls makes another, both are counted.
 * @param totals  gets the figures of all sessions so far.
 * @return CTXB_ERROR_INVALID_ARGUMENT for a call that is never counted. The error's text names all
 *         that are. */
CTXB_EXPORT ctxb_status ctxb_tenant_realtime(const ctxb_tenant* tenant, const char* call,
                                             ctxb_realtime_totals* totals);

/* ---- Guards ---------------------------------------------------------------------------------*/

/** A guard. Keep it on the stack from ctxb_tenant_enter to ctxb_guard_leave. Its content is
 * private to the broker. Its size stays the same as long as the library's SONAME does.
 *
 * Leave every guard that was entered. While one is not left, its tenant cannot be closed, the
 * context stays current on the thread, and its memory must stay as it is. */
typedef struct ctxb_guard {
  void* reserved[64];
} ctxb_guard;

/** Makes the context of the tenant's lease current on the calling thread. Guards nest and end in
 * reverse order. [any]
 *
 * @param doing  what runs inside, as strikes name it. Static text, or null.
 * @param guard  pass it to ctxb_guard_leave once. If this call fails, it need not be passed.
 * @return as ctxb_tenant_lease. */
CTXB_EXPORT ctxb_status ctxb_tenant_enter(ctxb_tenant* tenant, int32_t device, const char* doing,
                                          ctxb_guard* guard);

/** Makes the thread's context stack what it was before the matching ctxb_tenant_enter. Call it on
 * the same thread. If another thread calls it, a record tells the host, and the first thread is
 * restored later, as Guard in guard.hpp says. Null does nothing, and neither does a guard that has
 * been left already or that could not be entered. [any] */
CTXB_EXPORT void ctxb_guard_leave(ctxb_guard* guard);

#ifdef __cplusplus
}
#endif

#include "ctxbroker/host_diagnosis.h"
#include "ctxbroker/host_memory.h"
#include "ctxbroker/host_plugins.h"

#endif
