/**
 * @file
 * Plug-ins of the ctxbroker ABI (plugin.h) for hosts in C: libraries, instances, graphs and jobs.
 * host.h, which says what holds for all functions, includes this header.
 *
 *     ctxb_plugin_library* library = NULL;
 *     ctxb_instance* blur = NULL;
 *     ctxb_graph* graph = NULL;
 *     ctxb_activation_sizes sizes = {sizeof sizes, 1920, 1080, 0, 0};
 *     ctxb_plugin_library_load(broker, "plugins/blur.so", &library);
 *     ctxb_instance_create(broker, library, "blur", NULL, &blur);
 *     ctxb_instance_set_parameter(blur, "radius", 8);
 *     ctxb_instance_activate(blur, &sizes);
 *     ctxb_graph_create(broker, &description, &sizes, NULL, &graph);
 *     ctxb_graph_process(graph, &buffers, &job);
 *
 * ORDER OF THE ENDS. Graphs end before their instances, and all of them before the broker. A call
 * that would break this order returns CTXB_ERROR_WRONG_STATE and ends nothing. A library's handle
 * may be closed earlier, because each instance keeps its library loaded.
 *
 * THREADS. A function that is marked [graph] may be called by any thread, beside all calls that are
 * not about the graph's instances, but by one thread at a time for each graph. Graphs that have an
 * instance in common count as one graph, and only one of them may have jobs in flight. While a
 * graph runs a job, call only functions that are marked [any] for its instances.
 *
 * ARRAYS OF STRUCTS. All elements have the first element's `size`, which is the step from one to
 * the next.
 */
#ifndef CTXBROKER_HOST_GRAPH_H
#define CTXBROKER_HOST_GRAPH_H

#include "ctxbroker/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A handle of a loaded plug-in library. */
typedef struct ctxb_plugin_library ctxb_plugin_library;
/** One created object of a plug-in. */
typedef struct ctxb_instance ctxb_instance;
/** Instances that are connected port to port. */
typedef struct ctxb_graph ctxb_graph;

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
 * @param plugin    the plug-in's id or short name.
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
 * activation can then only be destroyed. */
CTXB_EXPORT ctxb_status ctxb_instance_deactivate(ctxb_instance* instance);
/** Returns 1 when the instance is active, else 0; 0 for null. [any] */
CTXB_EXPORT uint32_t ctxb_instance_is_active(const ctxb_instance* instance);

/** Returns by how many frames the plug-in's output is late; 0 when it does not say so, when the
 * instance is not active, and for null. */
CTXB_EXPORT uint64_t ctxb_instance_latency(const ctxb_instance* instance);
/** Returns 1 when the plug-in has asked to be activated again, because something has to change that
 * is constant for an activation: its latency, for example. Else 0, and 0 for null. [any] */
CTXB_EXPORT uint32_t ctxb_instance_restart_requested(const ctxb_instance* instance);
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
 * @return as ctxb_instance_save_state. */
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
  double device_seconds;      /**< The jobs' time on the device. */
  uint64_t memory_bytes;      /**< Device memory that it holds now, without jobs' buffers. */
  uint64_t memory_peak_bytes; /**< The most that it held at once. */
  uint64_t strikes;           /**< Recorded breaches of the plug-in contract. */
} ctxb_instance_metrics;

/** Tells what an instance used so far. [any] */
CTXB_EXPORT ctxb_status ctxb_instance_measure(const ctxb_instance* instance,
                                              ctxb_instance_metrics* metrics);

/* ---- Graphs ---------------------------------------------------------------------------------*/

/** One of the host's ends of a graph. */
typedef struct ctxb_graph_end {
  uint32_t size;     /**< sizeof(ctxb_graph_end). */
  uint32_t channels; /**< Of a pixel or of audio. 0: 4 for images, and the job's for audio. */
  uint32_t samples;  /**< CTXB_SAMPLE_FLOAT or _HALF; 0: float. */
  uint32_t reserved; /**< 0. */
  const char* name;  /**< As the edges call it: "plate". */
} ctxb_graph_end;

/** A plug-in in a graph. */
typedef struct ctxb_graph_node {
  uint32_t size;           /**< sizeof(ctxb_graph_node). */
  uint32_t reserved;       /**< 0. */
  const char* name;        /**< As the edges call it: "blur". */
  ctxb_instance* instance; /**< Active. It may be in several nodes. */
} ctxb_graph_node;

/** A connection. Its ends are "node.port", or "node" for the node's first port, or the name of one
 * of the host's ends. One output may feed several inputs; an input has one source. */
typedef struct ctxb_graph_edge {
  uint32_t size;     /**< sizeof(ctxb_graph_edge). */
  uint32_t reserved; /**< 0. */
  const char* from;  /**< An input of the graph, or an output port. */
  const char* to;    /**< An output of the graph, or an input port. */
} ctxb_graph_edge;

/** What a graph is made of. Order does not matter, except that jobs name the host's ends by their
 * position. An array may be null if its count is 0. */
typedef struct ctxb_graph_description {
  uint32_t size;                 /**< sizeof(ctxb_graph_description). */
  uint32_t input_count;          /**< Of inputs. 0: everything is generated. */
  uint32_t output_count;         /**< Of outputs, at least 1. */
  uint32_t node_count;           /**< Of nodes, at least 1. */
  uint32_t edge_count;           /**< Of edges. */
  uint32_t reserved;             /**< 0. */
  const ctxb_graph_end* inputs;  /**< What the host gives. */
  const ctxb_graph_end* outputs; /**< What the host gets. */
  const ctxb_graph_node* nodes;  /**< All for the same media. */
  const ctxb_graph_edge* edges;
} ctxb_graph_description;

/** How much a graph keeps ready. All members may be 0. */
typedef struct ctxb_graph_options {
  uint32_t size;           /**< sizeof(ctxb_graph_options). */
  uint32_t jobs_in_flight; /**< The most jobs that are submitted and not yet finished: 1 to 64. Each
                            * takes buffers of its own. 0: 1. */
} ctxb_graph_options;

/** Connects instances and allocates the buffers between them.
 *
 * @param description  what to connect. It is copied.
 * @param sizes        the largest job, no larger than what all instances are active for. For audio,
 *                     the sample rate is theirs.
 * @param options      may be null.
 * @param graph        gets the graph, which ctxb_graph_destroy ends.
 * @return CTXB_ERROR_INVALID_ARGUMENT, with the names of the ports, for a cycle, an input without a
 *         source, formats that do not meet, another broker's instance and other mistakes; else as
 *         ctxb_instance_activate. */
CTXB_EXPORT ctxb_status ctxb_graph_create(ctxb_broker* broker,
                                          const ctxb_graph_description* description,
                                          const ctxb_activation_sizes* sizes,
                                          const ctxb_graph_options* options, ctxb_graph** graph);
/** Waits for the jobs in flight and ends the graph. */
CTXB_EXPORT ctxb_status ctxb_graph_destroy(ctxb_graph* graph);

/** The host's memory for one job, in the order of the description's inputs and outputs. Everything
 * lies without gaps. An image has width * height * channels samples. Audio has its channels of
 * `width` floats each, one after the other. Results have the bytes that their port says. */
typedef struct ctxb_job_buffers {
  uint32_t size;             /**< sizeof(ctxb_job_buffers). */
  uint32_t input_count;      /**< The graph's. */
  uint32_t output_count;     /**< The graph's. */
  uint32_t reserved;         /**< 0. */
  const void* const* inputs; /**< What the job reads. May be null if input_count is 0. */
  void* const* outputs;      /**< What it writes. An output may be an input. */
} ctxb_job_buffers;

/** One change of a parameter within a block. With `ramp_frames` = 0, the value jumps to `value` at
 * frame `offset`. Otherwise it is `from` at frame `offset` and moves in a straight line to `value`,
 * which it reaches `ramp_frames` later. A ramp that began in an earlier block has a negative
 * offset, and it may end after the block: give it again with each block on which it lies. */
typedef struct ctxb_parameter_change {
  uint32_t size;           /**< sizeof(ctxb_parameter_change). */
  uint32_t parameter;      /**< Its number in the plug-in, from 0. */
  ctxb_instance* instance; /**< In the graph. */
  int64_t offset;          /**< Frame of the block, less than its width. */
  double value;            /**< The new value, or the one at the ramp's end. */
  double from;             /**< The value at the ramp's beginning; 0 for a jump. */
  uint32_t ramp_frames;    /**< How long the ramp takes; 0: a jump. */
  uint32_t reserved;       /**< 0. */
} ctxb_parameter_change;

/** What a block of audio has besides its samples. */
typedef struct ctxb_job_events {
  uint32_t size;                        /**< sizeof(ctxb_job_events). */
  uint32_t change_count;                /**< Of changes, at most 1024. */
  const ctxb_parameter_change* changes; /**< Sorted by their offsets. May be null if there are none.
                                         */
  const ctxb_transport* transport;      /**< Where the host's song is. May be null. */
} ctxb_job_events;

/** One job: an image, or a block of audio. */
typedef struct ctxb_job_info {
  uint32_t size;          /**< sizeof(ctxb_job_info). */
  uint32_t width;         /**< Pixels in a row, or frames in this block. */
  uint32_t height;        /**< Rows, or channels. */
  uint32_t discontinuity; /**< 1: the job does not follow the last one. */
  int64_t position;       /**< The frame's number, or the first sample's. */
  double sample_rate;     /**< Hz, for audio that of the activation; 0 for images. */
  uint64_t deadline_ns;   /**< How long the job may take, in ns; 0: no limit. The broker tells the
                           * plug-ins and does not enforce it. */
  const ctxb_job_events* events; /**< Of audio. May be null. */
} ctxb_job_info;

/** Starts one job and returns as soon as its work is enqueued. If as many jobs are in flight as
 * there may be, it finishes the oldest one first. After a loss, it activates plug-ins again that
 * are not active for real time. [graph]
 *
 * @param buffers  the inputs are read before the call returns. The outputs are written when the job
 *                 is finished, and must stay valid until then. The struct and its arrays may be
 *                 reused when the call returns.
 * @param info     no larger than the graph's sizes.
 * @param job      gets the job's number: 1, 2, 3, ...
 * @return as ctxb_graph_process. The job is then not in flight. */
CTXB_EXPORT ctxb_status ctxb_graph_submit(ctxb_graph* graph, const ctxb_job_buffers* buffers,
                                          const ctxb_job_info* info, uint64_t* job);
/** Waits until the outputs of a job, and of all older ones, are complete. It does nothing for a job
 * that is finished. [graph]
 *
 * @param job  what ctxb_graph_submit gave.
 * @return as ctxb_graph_process, for this job or an older one. Then no job is in flight any more,
 *         and the outputs of those that were are undefined. */
CTXB_EXPORT ctxb_status ctxb_graph_finish(ctxb_graph* graph, uint64_t job);
/** Tells whether a job is finished, or can be finished without waiting. It does not wait. [graph]
 *
 * @param done  gets 1 or 0.
 * @return CTXB_ERROR_INVALID_ARGUMENT for a number that ctxb_graph_submit has not given. */
CTXB_EXPORT ctxb_status ctxb_graph_is_done(const ctxb_graph* graph, uint64_t job, uint32_t* done);
/** Runs one job and returns when its outputs are complete: ctxb_graph_submit and ctxb_graph_finish.
 * [graph]
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT for a job that is too large or has another sample rate than
 *         the graph, and for missing buffers; CTXB_ERROR_WRONG_STATE when an instance was
 *         deactivated; CTXB_ERROR when a plug-in refuses; CTXB_ERROR_CONTEXT_LOST,
 *         CTXB_ERROR_DRIVER. The graph can be used again unless the text says otherwise. */
CTXB_EXPORT ctxb_status ctxb_graph_process(ctxb_graph* graph, const ctxb_job_buffers* buffers,
                                           const ctxb_job_info* info);

/** Returns by how many frames the outputs of audio are late, all of them by the same number; 0 for
 * images, and for null. [graph] */
CTXB_EXPORT uint64_t ctxb_graph_latency(const ctxb_graph* graph);
/** Tells by how many frames the audio is late that comes to node number `node`. A change that
 * belongs to frame f of the song belongs to frame f + `frames` of what the node processes. [graph]
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT when there is no such node. */
CTXB_EXPORT ctxb_status ctxb_graph_latency_before(const ctxb_graph* graph, uint32_t node,
                                                  uint64_t* frames);

#ifdef __cplusplus
}
#endif

#include "ctxbroker/host_parameters.h"

#endif /* CTXBROKER_HOST_GRAPH_H */
