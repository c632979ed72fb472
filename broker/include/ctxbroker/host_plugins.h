// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Plug-ins of the ctxbroker ABI (plugin.h) for hosts in C: libraries and instances. host.h, which
 * says what holds for all functions, includes this header. host_parameters.h sets parameters, and
 * host_graph.h runs jobs.
 *
 *     ctxb_plugin_library* library = NULL;
 *     ctxb_instance* blur = NULL;
 *     ctxb_activation_sizes sizes = {sizeof sizes, 1920, 1080, 0, 0};
 *     ctxb_plugin_library_load(broker, "plugins/blur.so", &library);
 *     ctxb_instance_create(broker, library, "blur", NULL, &blur);
 *     ctxb_instance_set_parameter(blur, "radius", 8);
 *     ctxb_instance_activate(blur, &sizes);
 *
 * ORDER OF THE ENDS. Graphs end before their instances and tenants, and all of them before the
 * broker. A call that would break this order returns CTXB_ERROR_WRONG_STATE and ends nothing. A
 * library's handle may be closed earlier, because each instance keeps its library loaded.
 *
 * While a graph runs a job, call only functions that are marked [any] for its instances.
 */
#ifndef CTXBROKER_HOST_PLUGINS_H
#define CTXBROKER_HOST_PLUGINS_H

#include "ctxbroker/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A handle of a loaded plug-in library. */
typedef struct ctxb_plugin_library ctxb_plugin_library;
/** One created object of a plug-in. */
typedef struct ctxb_instance ctxb_instance;

/* ---- Broker ---------------------------------------------------------------------------------*/

/** Opens a broker without a driver, which can load and describe libraries on any machine. Functions
 * that need a driver return CTXB_ERROR_WRONG_STATE.
 *
 * @param options  may be null.
 * @param broker   gets the broker, which ctxb_broker_close ends. */
CTXB_EXPORT ctxb_status ctxb_broker_open_without_driver(const ctxb_broker_options* options,
                                                        ctxb_broker** broker);

/** Gives up the context of a tenant's lease, as if it were lost. The next use creates a new one. It
 * is for tests, and for hosts that want a fresh start. [any]
 *
 * @param tenant  the tenant's number, of a plug-in library for example.
 * @param reason  one sentence for the log.
 * @return CTXB_ERROR_INVALID_ARGUMENT when the tenant has no lease there. */
CTXB_EXPORT ctxb_status ctxb_broker_force_loss(ctxb_broker* broker, uint32_t tenant, int32_t device,
                                               const char* reason);

/** Unloads modules that nothing needs now. They are loaded again when they are used. [any]
 *
 * @param unloaded  gets how many. May be null.
 * @return CTXB_ERROR_UNAVAILABLE when there is no such device. */
CTXB_EXPORT ctxb_status ctxb_broker_unload_idle_modules(ctxb_broker* broker, int32_t device,
                                                        uint64_t* unloaded);

/* ---- Libraries and what is in them ----------------------------------------------------------*/

/** Loads a plug-in library, calls its init and checks its descriptors.
 *
 * @param path     the library's file. If it is loaded already, the call gives another handle of it.
 * @param library  gets the handle, which ctxb_plugin_library_close ends.
 * @return CTXB_ERROR_UNAVAILABLE for a file that is not there; CTXB_ERROR_VERSION for a library of
 *         another major version of the ABI; CTXB_ERROR when the system's loader or the broker
 *         refuses it, or its init fails. */
CTXB_EXPORT ctxb_status ctxb_plugin_library_load(ctxb_broker* broker, const char* path,
                                                 ctxb_plugin_library** library);

/** Ends the handle, and with it all texts and arrays that came from it. The library itself ends
 * with its last handle and its last instance. */
CTXB_EXPORT ctxb_status ctxb_plugin_library_close(ctxb_plugin_library* library);

/** A loaded library. The texts belong to the handle. */
typedef struct ctxb_library_info {
  uint32_t size;         /**< sizeof(ctxb_library_info). */
  uint32_t tenant;       /**< Its number as a tenant. */
  const char* path;      /**< The file, as an absolute path without links in it. */
  const char* name;      /**< The file's name without "lib" and suffix: the tenant's name. */
  uint32_t plugin_count; /**< How many plug-ins it has, at least 1. */
  uint32_t reserved;     /**< 0. */
} ctxb_library_info;

/** Describes a library. [any] */
CTXB_EXPORT ctxb_status ctxb_plugin_library_describe(const ctxb_plugin_library* library,
                                                     ctxb_library_info* info);

/** A plug-in, as ctxb_plugin_descriptor says it. Texts and arrays belong to the library's handle.
 */
typedef struct ctxb_plugin_info {
  uint32_t size;               /**< sizeof(ctxb_plugin_info). */
  uint32_t media;              /**< CTXB_MEDIA_IMAGE or _AUDIO. */
  const char* id;              /**< "com.example.blur". */
  const char* short_name;      /**< The last part of the id. */
  const char* name;            /**< For people. */
  const char* vendor;          /**< Who makes it. */
  const char* version;         /**< "1.2.3". */
  const char* description;     /**< One sentence. */
  const char* const* features; /**< Words to find it by, ending with null. */
  uint32_t flags;              /**< CTXB_PLUGIN_*. */
  uint32_t cuda_use;           /**< CTXB_CUDA_*. */
  uint32_t lease;              /**< CTXB_LEASE_*: the lease that it would like. */
  uint32_t min_compute_major;  /**< The least compute capability that it needs; 0.0: any. */
  uint32_t min_compute_minor;
  uint32_t input_count;     /**< 0: it generates. */
  uint32_t output_count;    /**< At least 1. */
  uint32_t parameter_count; /**< How many parameters it has. */
} ctxb_plugin_info;

/** Describes plug-in number `plugin` of a library. [any]
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT when there is no such plug-in. */
CTXB_EXPORT ctxb_status ctxb_plugin_library_plugin(const ctxb_plugin_library* library,
                                                   uint32_t plugin, ctxb_plugin_info* info);

/** A port, as ctxb_port says it. The texts belong to the library's handle. */
typedef struct ctxb_port_info {
  uint32_t size;         /**< sizeof(ctxb_port_info). */
  uint32_t flags;        /**< CTXB_PORT_*. */
  const char* id;        /**< "mask". */
  const char* name;      /**< For people. */
  uint32_t channels;     /**< Bits, as CTXB_CHANNELS makes them; 0 for results. */
  uint32_t samples;      /**< CTXB_SAMPLE_*, combined with |; 0 for results. */
  uint32_t result_bytes; /**< The bytes of results. 0: the port is an image or audio. */
  uint32_t in_place;     /**< Of an output: the number of the input whose buffer it may have, plus
                          * 1; 0: none. */
} ctxb_port_info;

/** Describes input number `input` of a plug-in. [any]
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT when there is no such plug-in or input. */
CTXB_EXPORT ctxb_status ctxb_plugin_library_input(const ctxb_plugin_library* library,
                                                  uint32_t plugin, uint32_t input,
                                                  ctxb_port_info* info);
/** Describes output number `output` of a plug-in. [any]
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT when there is no such plug-in or output. */
CTXB_EXPORT ctxb_status ctxb_plugin_library_output(const ctxb_plugin_library* library,
                                                   uint32_t plugin, uint32_t output,
                                                   ctxb_port_info* info);

/** A parameter, as ctxb_parameter says it. Texts and arrays belong to the library's handle. */
typedef struct ctxb_parameter_info {
  uint32_t size;              /**< sizeof(ctxb_parameter_info). */
  uint32_t type;              /**< CTXB_PARAMETER_FLOAT ... */
  const char* id;             /**< "radius". */
  const char* name;           /**< For people. */
  const char* unit;           /**< "px", "dB", ...; "" for a plain number. */
  const char* description;    /**< One sentence. */
  double minimum;             /**< The least that each number may be. */
  double maximum;             /**< The greatest that each number may be. */
  double default_numbers[4];  /**< Those of a new instance; the ones that the type has not are 0. */
  const char* const* choices; /**< The names of a choice's values, ending with null. */
  uint32_t flags;             /**< CTXB_PARAMETER_*. */
  uint32_t number_count;      /**< 1, 2 of a point, 4 of a colour; 0 of a string or a file. */
  double skew;                /**< How a slider moves, as in ctxb_parameter. */
  const char* group;          /**< For people; "" for none. */
  const char* default_text;   /**< The text of a new instance; "" for numbers. */
  const char* const* endings; /**< Of a file's name, ending with null. None: any file. */
} ctxb_parameter_info;

/** Describes parameter number `parameter` of a plug-in. [any]
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT when there is no such plug-in or parameter. */
CTXB_EXPORT ctxb_status ctxb_plugin_library_parameter(const ctxb_plugin_library* library,
                                                      uint32_t plugin, uint32_t parameter,
                                                      ctxb_parameter_info* info);

/* ---- Instances ------------------------------------------------------------------------------*/

#define CTXB_PLACEMENT_POLICY 0           /**< As the policy says, else where its tenant works. */
#define CTXB_PLACEMENT_DEVICE 1           /**< The device that `device` names. */
#define CTXB_PLACEMENT_ROUND_ROBIN 2      /**< Each new tenant gets the next device in turn. */
#define CTXB_PLACEMENT_MOST_FREE_MEMORY 3 /**< The device with the most free memory. */

/** How to create an instance. All members may be 0. */
typedef struct ctxb_instance_options {
  uint32_t size;            /**< sizeof(ctxb_instance_options). */
  uint32_t placement;       /**< CTXB_PLACEMENT_*. */
  int32_t device;           /**< Of CTXB_PLACEMENT_DEVICE; else 0. */
  uint32_t lease;           /**< CTXB_LEASE_AUTO, _SHARED, _PRIVATE or _GREEN. If the tenant has a
                             * lease on the device already, the instance gets that. */
  uint32_t multiprocessors; /**< Green: at least this many, reserved. 0: all, none reserved. */
  uint32_t job_graphs;      /**< 1: launch each job's work as one CUDA graph. Not in real time. */
  /** Device memory, in bytes, that the instance may allocate through the broker. 0: as the policy
   * says, or no limit. UINT64_MAX: no limit. */
  uint64_t memory_budget;
} ctxb_instance_options;

/** Creates an instance of a plug-in.
 *
 * @param library   a library that this broker loaded.
 * @param plugin    the plug-in's id or short name. Empty: the only plug-in of the library.
 * @param options   may be null.
 * @param instance  gets the instance, which ctxb_instance_destroy ends.
 * @return CTXB_ERROR_UNAVAILABLE when the library has no such plug-in, the lease is not to be had,
 *         or the plug-in needs NVIDIA's driver; CTXB_ERROR_NO_KERNEL_IMAGE when the device is too
 *         old for it; CTXB_ERROR when the plug-in refuses; CTXB_ERROR_INVALID_ARGUMENT for another
 *         broker's library; CTXB_ERROR_OUT_OF_DEVICE_MEMORY, CTXB_ERROR_CONTEXT_LOST,
 *         CTXB_ERROR_DRIVER. */
CTXB_EXPORT ctxb_status ctxb_instance_create(ctxb_broker* broker,
                                             const ctxb_plugin_library* library, const char* plugin,
                                             const ctxb_instance_options* options,
                                             ctxb_instance** instance);

/** Deactivates and destroys an instance.
 *
 * @return CTXB_ERROR_WRONG_STATE while a graph has it. The instance is then still there. */
CTXB_EXPORT ctxb_status ctxb_instance_destroy(ctxb_instance* instance);

/** The largest jobs that an activation or a graph must serve. */
typedef struct ctxb_activation_sizes {
  uint32_t size;       /**< sizeof(ctxb_activation_sizes). */
  uint32_t max_width;  /**< Pixels in a row, or frames in a block. At least 1. */
  uint32_t max_height; /**< Rows, or channels. At least 1. */
  uint32_t realtime;   /**< 1: jobs come from a thread with real-time constraints. */
  double sample_rate;  /**< Hz, above 0 for audio; 0 for images. */
} ctxb_activation_sizes;

/** Loads the plug-in's modules and lets the plug-in allocate. After an error, the instance is not
 * active, and what the plug-in had allocated is given back.
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT for the sizes; CTXB_ERROR_WRONG_STATE when it is active;
 *         CTXB_ERROR when the plug-in refuses; CTXB_ERROR_NO_KERNEL_IMAGE,
 *         CTXB_ERROR_OUT_OF_DEVICE_MEMORY, CTXB_ERROR_CONTEXT_LOST, CTXB_ERROR_UNAVAILABLE,
 *         CTXB_ERROR_DRIVER. */
CTXB_EXPORT ctxb_status ctxb_instance_activate(ctxb_instance* instance,
                                               const ctxb_activation_sizes* sizes);
/** Waits for the plug-in's work, at most ctxb_broker_options.end_timeout_ms, and lets the plug-in
 * give back what it took. It does nothing when the instance is not active. The graphs of this
 * activation can then only be destroyed. If another thread is still inside a call of the library
 * after that time, the instance stays active, and a record says why. */
CTXB_EXPORT ctxb_status ctxb_instance_deactivate(ctxb_instance* instance);
/** Returns 1 when the instance is active, else 0; 0 for null. [any] */
CTXB_EXPORT uint32_t ctxb_instance_is_active(const ctxb_instance* instance);

/** Returns 1 when the plug-in has asked to be activated again (ctxb_host.request_restart), because
 * something has to change that is constant for an activation: its latency, for example. Until you
 * deactivate and activate it, it goes on as before. 0 for null. [any] */
CTXB_EXPORT uint32_t ctxb_instance_restart_requested(const ctxb_instance* instance);

/** Returns by how many frames the plug-in's output is late; 0 when it does not say so, when the
 * instance is not active, and for null. */
CTXB_EXPORT uint64_t ctxb_instance_latency(const ctxb_instance* instance);
/** Returns for how many frames the plug-in's output goes on after the input ends;
 * CTXB_TAIL_INFINITE: for ever. 0 as for ctxb_instance_latency. */
CTXB_EXPORT uint64_t ctxb_instance_tail(const ctxb_instance* instance);

/** Asks the plug-in for what it remembers beyond its parameters.
 *
 * @param write  takes the bytes, in one piece. It is not called when there are none.
 * @param data   passed to write.
 * @return CTXB_ERROR_WRONG_STATE while the instance is active; CTXB_ERROR when the plug-in refuses.
 */
CTXB_EXPORT ctxb_status ctxb_instance_save_state(const ctxb_instance* instance,
                                                 ctxb_text_function write, void* data);
/** Gives the plug-in back what ctxb_instance_save_state wrote, perhaps in another process. After an
 * error, the plug-in's state is unchanged.
 *
 * @param state  may be null if `bytes` is 0.
 * @return as ctxb_instance_save_state; CTXB_ERROR_INVALID_ARGUMENT for more than 1 GiB. */
CTXB_EXPORT ctxb_status ctxb_instance_load_state(ctxb_instance* instance, const void* state,
                                                 uint64_t bytes);

/** Describes the instance's lease as it is now. `tenant` and `reason` are valid until
 * ctxb_instance_destroy. */
CTXB_EXPORT ctxb_status ctxb_instance_lease(ctxb_instance* instance, ctxb_lease_info* info);

/** What one instance used since it was created. ctxb_broker_write_metrics has the same for all of
 * them. */
typedef struct ctxb_instance_metrics {
  uint32_t size;              /**< sizeof(ctxb_instance_metrics). */
  uint32_t reserved;          /**< 0. */
  uint64_t jobs;              /**< Completed jobs. */
  uint64_t launches;          /**< Kernels launched through the broker. */
  uint64_t graph_jobs;        /**< The jobs that ran as one CUDA graph. */
  double device_seconds;      /**< The measured jobs' time on the device. */
  uint64_t memory_bytes;      /**< Device memory that it holds now, without jobs' buffers. */
  uint64_t memory_peak_bytes; /**< The most that it held at once. */
  uint64_t strikes;           /**< Recorded breaches of the plug-in contract. */
  uint64_t late_jobs;         /**< Jobs whose work here had not ended at their deadline. */
} ctxb_instance_metrics;

/** Tells what an instance used so far. [any] */
CTXB_EXPORT ctxb_status ctxb_instance_measure(const ctxb_instance* instance,
                                              ctxb_instance_metrics* metrics);

#ifdef __cplusplus
}
#endif

#include "ctxbroker/host_parameters.h"

#include "ctxbroker/host_graph.h"

#endif /* CTXBROKER_HOST_PLUGINS_H */
