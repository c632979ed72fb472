// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Graphs and jobs for hosts in C. host.h, which says what holds for all functions, includes this
 * header. host_plugins.h makes the instances.
 *
 *     ctxb_graph* graph = NULL;
 *     ctxb_graph_create(broker, &description, &sizes, NULL, &graph);
 *     ctxb_graph_process(graph, &buffers, &job, NULL);
 *     ctxb_graph_destroy(graph);
 *
 * THREADS. A function that is marked [graph] may be called by any thread, beside all calls that are
 * not about the graph's instances, but by one thread at a time for each graph. Graphs that have an
 * instance in common count as one graph, and only one of them may have jobs in flight.
 *
 * ARRAYS OF STRUCTS. All elements have the first element's `size`, which is the step from one to
 * the next.
 */
#ifndef CTXBROKER_HOST_GRAPH_H
#define CTXBROKER_HOST_GRAPH_H

#include "ctxbroker/host_plugins.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Instances that are connected port to port. */
typedef struct ctxb_graph ctxb_graph;

/* ---- Graphs ---------------------------------------------------------------------------------*/

/** A port of a graph: an input that the host gives, or an output that it gets. */
typedef struct ctxb_graph_port {
  uint32_t size;     /**< sizeof(ctxb_graph_port). */
  uint32_t channels; /**< Of a pixel or of audio. 0: 4 for images, and the job's for audio. */
  uint32_t samples;  /**< CTXB_SAMPLE_FLOAT or _HALF; 0: float. */
  /** 1: the host's memory for it is device memory, in the lease of ctxb_graph_description.tenant.
   */
  uint32_t on_device;
  const char* name; /**< As the edges call it: "plate". */
} ctxb_graph_port;

/** A plug-in in a graph. */
typedef struct ctxb_graph_node {
  uint32_t size;           /**< sizeof(ctxb_graph_node). */
  uint32_t reserved;       /**< 0. */
  const char* name;        /**< As the edges call it: "blur". */
  ctxb_instance* instance; /**< Active. It may be in several nodes. */
} ctxb_graph_node;

/** A connection. It names its source and its target as "node.port", as "node" for the node's first
 * port, or with the name of one of the graph's ports. One output may feed several inputs; an input
 * has one source. */
typedef struct ctxb_graph_edge {
  uint32_t size;     /**< sizeof(ctxb_graph_edge). */
  uint32_t reserved; /**< 0. */
  const char* from;  /**< An input of the graph, or an output port. */
  const char* to;    /**< An output of the graph, or an input port. */
} ctxb_graph_edge;

/** Describes a graph: its ports, nodes and edges. Order does not matter, except that jobs name the
 * graph's ports by their position. An array may be null if its count is 0. */
typedef struct ctxb_graph_description {
  uint32_t size;                  /**< sizeof(ctxb_graph_description). */
  uint32_t input_count;           /**< Of inputs. 0: everything is generated. */
  uint32_t output_count;          /**< Of outputs, at least 1. */
  uint32_t node_count;            /**< Of nodes, at least 1. */
  uint32_t edge_count;            /**< Of edges. */
  int32_t device;                 /**< The device of the tenant's memory; 0 without a tenant. */
  const ctxb_graph_port* inputs;  /**< What the host gives. */
  const ctxb_graph_port* outputs; /**< What the host gets. */
  const ctxb_graph_node* nodes;   /**< All for the same media. */
  const ctxb_graph_edge* edges;
  ctxb_tenant* tenant; /**< Whose memory the ports on the device are in. Null: there is none. */
} ctxb_graph_description;

#define CTXB_LATE_DELIVER 0 /**< The graph waits for a late job, and its outputs are complete. */
/** The graph does not wait for a late job. Each output is a copy of the first input that has its
 * format, or zeros if there is none. Audio is delayed by ctxb_graph_latency. */
#define CTXB_LATE_DRY 1
#define CTXB_LATE_DROP 2 /**< The graph does not wait, and the outputs are not written. */

/** Takes the number of a job as soon as all of its work is done, so that ctxb_graph_finish does not
 * wait. A driver thread or a thread in a call about the graph calls it, perhaps before
 * ctxb_graph_submit has returned. It must return quickly, and call neither CUDA nor the broker. Do
 * not hold a lock that it takes during a call of any graph, because that call may wait for it. It
 * is not called for a job whose work fails, and not after the graph's end.
 *
 * @param data  ctxb_graph_options.on_done_data. */
typedef void (*ctxb_job_function)(void* data, uint64_t job);

/** Options for how a graph runs its jobs. All members may be 0. */
typedef struct ctxb_graph_options {
  uint32_t size;           /**< sizeof(ctxb_graph_options). */
  uint32_t jobs_in_flight; /**< The most jobs that are submitted and not yet finished: 1 to 64. Each
                            * takes buffers of its own. 0: 1. */
  uint32_t measure;        /**< 1: measure how long each node works on the device. */
  uint32_t without_marks;  /**< 1: do without the marks by which an error after a fault names only
                            * the plug-in that can have caused it. */
  uint32_t late;           /**< CTXB_LATE_*: what becomes of jobs that miss their deadlines. A graph
                            * with ports on the device can only deliver. */
  uint32_t changes_per_job;  /**< The most changes of parameters that a job may have. 0: 1024. */
  ctxb_job_function on_done; /**< May be null. */
  void* on_done_data;        /**< Passed to on_done. */
  /** The most jobs that wait until they can be in flight: 0 to 1024. Such a job can be cancelled.
   * It begins in a call about the graph that finds room for it, and its inputs are read then. A
   * graph with ports on the device has none. */
  uint32_t jobs_waiting;
  uint32_t reserved; /**< 0. */
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
/** Waits for the jobs in flight and ends the graph. Their outputs are written. */
CTXB_EXPORT ctxb_status ctxb_graph_destroy(ctxb_graph* graph);

/** The host's memory for one job, in the order of the description's inputs and outputs. If a
 * plug-in needs frames around the job's own one, there are more inputs: see ctxb_graph_job_input.
 * Everything lies without gaps. An image has width * height * channels samples. If the job has a
 * region, an output has that, and an input what ctxb_graph_input_regions says. Audio has its
 * channels of `width` floats each, one after the other. Results have the bytes that their port
 * says. */
typedef struct ctxb_job_buffers {
  uint32_t size;             /**< sizeof(ctxb_job_buffers). */
  uint32_t input_count;      /**< As ctxb_graph_job_input_count says. */
  uint32_t output_count;     /**< The graph's. */
  uint32_t reserved;         /**< 0. */
  const void* const* inputs; /**< What the job reads; device addresses for ports on the device. May
                              * be null if input_count is 0. */
  void* const* outputs;      /**< What it writes, likewise. An output may be an input. */
  /** For ports on the device: a CUstream in the lease that holds them. The job reads and writes
   * there after all work that is in the stream now. Null: it need not wait. */
  void* after;
} ctxb_job_buffers;

/** One change of a parameter within a block of audio. With `ramp_frames` = 0, the value jumps to
 * `value` at frame `offset`. Otherwise it is `from` at frame `offset`, moves in a straight line,
 * and is `value` at frame `offset + ramp_frames`. A ramp that began in an earlier block has a
 * negative offset, and one that goes on may end after the block. Give such a ramp again with each
 * block on which it lies. */
typedef struct ctxb_parameter_change {
  uint32_t size;           /**< sizeof(ctxb_parameter_change). */
  uint32_t parameter;      /**< Its number, as ctxb_plugin_library_parameter counts. */
  ctxb_instance* instance; /**< In the graph. */
  int64_t offset;          /**< Frame of the block, less than its width. */
  double value;            /**< The new value, or the one at the ramp's end. */
  double from;             /**< The value at the ramp's beginning; 0 for a jump. */
  uint32_t ramp_frames;    /**< How long the ramp takes; 0: a jump. */
  uint32_t reserved;       /**< 0. */
} ctxb_parameter_change;

/** The events of a block of audio: changes of parameters, and the state of the host's song. */
typedef struct ctxb_job_events {
  uint32_t size;         /**< sizeof(ctxb_job_events). */
  uint32_t change_count; /**< Of changes, at most ctxb_graph_options.changes_per_job. */
  /** In the order of their offsets. Of two for one parameter at one offset, the later one counts.
   * May be null if there are none. */
  const ctxb_parameter_change* changes;
  const ctxb_transport* transport; /**< Where the host's song is. Null: unknown. */
} ctxb_job_events;

/** One job: an image, or a block of audio. */
typedef struct ctxb_job_info {
  uint32_t size;                 /**< sizeof(ctxb_job_info). */
  uint32_t width;                /**< Pixels in a row, or frames in this block. */
  uint32_t height;               /**< Rows, or channels. */
  uint32_t discontinuity;        /**< 1: the job does not follow the last one. */
  int64_t position;              /**< The frame's number, or the first sample's. */
  double sample_rate;            /**< Hz, for audio that of the activation; 0 for images. */
  uint64_t deadline_ns;          /**< How long the job may take from submit on, in ns; 0: no limit.
                                  * ctxb_graph_options.late says what becomes of one that takes longer. */
  const ctxb_job_events* events; /**< Of audio. May be null. */
  /** For images: the part that the host gets of each output, a tile for example. All 0: width x
   * height pixels from (0, 0). */
  ctxb_rectangle region;
  uint32_t extent_count; /**< Of extents: 0, or one for each of the description's inputs. */
  uint32_t reserved;     /**< 0. */
  /** For images: the extents of the inputs. Null: all have width x height pixels from (0, 0). */
  const ctxb_rectangle* extents;
} ctxb_job_info;

/** Its outputs are complete. ctxb_graph_finish did not have to wait beyond its deadline. */
#define CTXB_OUTCOME_DONE 0
/** Its outputs are complete, but ctxb_graph_finish waited for them beyond its deadline. */
#define CTXB_OUTCOME_LATE 1
#define CTXB_OUTCOME_DRY 2     /**< It was late, and its outputs are as CTXB_LATE_DRY says. */
#define CTXB_OUTCOME_DROPPED 3 /**< It was late, and its outputs were not written. */
/** It was finished too long ago, or it was lost in a failure of an older job. */
#define CTXB_OUTCOME_FORGOTTEN 4
/** ctxb_graph_cancel took it back before it began. Its outputs were not written. */
#define CTXB_OUTCOME_CANCELLED 5

/** Starts one job and returns as soon as its work is enqueued. If as many jobs are in flight as
 * there may be, the job waits (ctxb_graph_options.jobs_waiting). If as many wait as there may be,
 * the call finishes the oldest job first. After a loss, it activates plug-ins again that
 * are not active for real time. [graph]
 *
 * @param buffers  the inputs are read before the call returns, or when a job that waits begins. The
 *                 outputs are written when the job is finished. Both must stay valid until then.
 * What lies in device memory or in a ctxb_host_memory is read and written while the job runs, and
 * must stay as it is until the job is finished. The struct and its arrays may be reused when the
 * call returns.
 * @param info     no larger than the graph's sizes.
 * @param job      gets the job's number: 1, 2, 3, ...
 * @return as ctxb_graph_process. After an error, this job has no number and is not in flight. The
 *         others still are, so finish them. If it was an older job that failed, none is in flight
 *         any more, and ctxb_graph_finish gives CTXB_OUTCOME_FORGOTTEN for them. */
CTXB_EXPORT ctxb_status ctxb_graph_submit(ctxb_graph* graph, const ctxb_job_buffers* buffers,
                                          const ctxb_job_info* info, uint64_t* job);
/** Waits until the outputs of a job, and of all older ones, are complete. It does nothing for a job
 * that is finished or cancelled. If a job that had waited could not begin, the call fails as
 * ctxb_graph_submit does. [graph]
 *
 * @param job      what ctxb_graph_submit gave.
 * @param outcome  gets CTXB_OUTCOME_*. A graph remembers that for as many jobs as it may have in
 *                 flight and waiting. May be null.
 * @return CTXB_ERROR_INVALID_ARGUMENT for a number that ctxb_graph_submit has not given; as
 *         ctxb_graph_process, for this job or an older one. Then no job is in flight any more, and
 *         the outputs of those that were are undefined. */
CTXB_EXPORT ctxb_status ctxb_graph_finish(ctxb_graph* graph, uint64_t job, uint32_t* outcome);
/** Tells whether a job is finished, or can be finished without waiting. If jobs wait
 * (ctxb_graph_options.jobs_waiting), it finishes those that are done and begins with others, so it
 * calls plug-ins and on_done on this thread. It does not wait. [graph]
 *
 * @param done  gets 1 or 0.
 * @return CTXB_ERROR_INVALID_ARGUMENT for a number that ctxb_graph_submit has not given. */
CTXB_EXPORT ctxb_status ctxb_graph_is_done(ctxb_graph* graph, uint64_t job, uint32_t* done);
/** Takes a job back that waits. on_done is called for it, in this call. It does nothing for a job
 * that has begun. [graph]
 *
 * @param cancelled  gets 1 if the job was waiting, else 0. May be null.
 * @return CTXB_ERROR_INVALID_ARGUMENT for a number that ctxb_graph_submit has not given. */
CTXB_EXPORT ctxb_status ctxb_graph_cancel(ctxb_graph* graph, uint64_t job, uint32_t* cancelled);
/** Makes a stream wait until a job's outputs are complete. The calling thread does not wait. The
 * job has to be finished all the same. [graph]
 *
 * @param stream  a CUstream in the lease that holds the graph's ports on the device.
 * @return CTXB_ERROR_INVALID_ARGUMENT for a number that ctxb_graph_submit has not given, a null
 *         stream, and a graph without ports on the device; CTXB_ERROR_DRIVER,
 *         CTXB_ERROR_CONTEXT_LOST. */
CTXB_EXPORT ctxb_status ctxb_graph_follow(ctxb_graph* graph, uint64_t job, void* stream);
/** Runs one job and returns when its outputs are complete: ctxb_graph_submit and ctxb_graph_finish.
 * [graph]
 *
 * @param outcome  gets CTXB_OUTCOME_*. May be null.
 * @return CTXB_ERROR_INVALID_ARGUMENT for a job that is too large or has another sample rate than
 *         the graph, for missing buffers, and for changes that cannot be made;
 *         CTXB_ERROR_WRONG_STATE when an instance was deactivated; CTXB_ERROR when a plug-in
 *         refuses; CTXB_ERROR_CONTEXT_LOST, CTXB_ERROR_DRIVER. The graph can be used again unless
 *         the text says otherwise. */
CTXB_EXPORT ctxb_status ctxb_graph_process(ctxb_graph* graph, const ctxb_job_buffers* buffers,
                                           const ctxb_job_info* info, uint32_t* outcome);

/** One member of ctxb_job_buffers.inputs. */
typedef struct ctxb_job_input {
  uint32_t size;  /**< sizeof(ctxb_job_input). */
  uint32_t input; /**< Number of the description's input. */
  int32_t frame;  /**< The distance from the job's frame: -1 for the frame before it. */
} ctxb_job_input;

/** Returns how many inputs a job has; 0 for null. It is the number of the description's inputs,
 * unless plug-ins need frames around the job's own one. [graph] */
CTXB_EXPORT uint32_t ctxb_graph_job_input_count(const ctxb_graph* graph);
/** Describes input number `index` of every job: input after input of the description, each with its
 * frames in order. Beyond the ends of a sequence, give the frame at the end again. [graph]
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT when there is no such input. */
CTXB_EXPORT ctxb_status ctxb_graph_job_input(const ctxb_graph* graph, uint32_t index,
                                             ctxb_job_input* input);
/** Asks the plug-ins for the extents of the graph's outputs: how large the whole images are.
 * [graph]
 *
 * @param info     its size or extents, and its position. Other members do not count.
 * @param count    of extents: the description's outputs.
 * @param extents  gets one for each output; all 0 for results.
 * @return CTXB_ERROR_INVALID_ARGUMENT for audio, another count, and inputs whose extents do not
 * suit a plug-in; CTXB_ERROR when a plug-in refuses; as ctxb_graph_process for a lost lease. */
CTXB_EXPORT ctxb_status ctxb_graph_output_extents(ctxb_graph* graph, const ctxb_job_info* info,
                                                  uint32_t count, ctxb_rectangle* extents);
/** Asks the plug-ins which parts of the inputs a job needs for its region. The answers depend on
 * the parameters, so ask after you have set them. [graph]
 *
 * @param info     as for ctxb_graph_submit.
 * @param count    of regions: ctxb_graph_job_input_count.
 * @param regions  gets one for each of the job's inputs, inside the input's extent.
 * @return as ctxb_graph_output_extents; CTXB_ERROR_INVALID_ARGUMENT also for a region outside an
 *         output's extent. */
CTXB_EXPORT ctxb_status ctxb_graph_input_regions(ctxb_graph* graph, const ctxb_job_info* info,
                                                 uint32_t count, ctxb_rectangle* regions);

/** Returns by how many frames the graph's outputs of audio are late, all of them by the same
 * number; 0 for images and for null. It is constant until an instance is activated again. [graph]
 */
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

#endif /* CTXBROKER_HOST_GRAPH_H */
