// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * The extensions of the ctxbroker plug-in ABI. plugin.h, which says what holds for all of them,
 * includes this header.
 *
 * An extension's id is "name/revision". A revision never changes, and its successor gets a new
 * number. A draft keeps its id when it is promoted. No function of an extension is null. A host
 * does not use a plug-in's extension in which a function is null or whose size is wrong, and counts
 * a strike.
 */
#ifndef CTXBROKER_PLUGIN_EXTENSIONS_H
#define CTXBROKER_PLUGIN_EXTENSIONS_H

#include "ctxbroker/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Host's side: device memory, kernels and launches in the instance's lease. After deactivate, the
 * host frees what the plug-in has not released. Handles are dead after deactivate or context_lost.
 * The host refuses a dead handle with CTXB_ERROR_CONTEXT_LOST. */
#define CTXB_EXT_GPU "ctxbroker.gpu/1"

typedef struct ctxb_kernel ctxb_kernel; /**< opaque; owned by the host; one generation */

/** One launch of a kernel. It is lent until the call returns. */
typedef struct ctxb_launch {
  uint32_t size;
  uint32_t argument_count;
  const ctxb_kernel* kernel;
  void* stream;                   /**< the job's (or, in activate, the activation's) stream */
  uint32_t grid[3];               /**< blocks; each at least 1 */
  uint32_t block[3];              /**< threads; each at least 1 */
  uint32_t shared_bytes;          /**< dynamic shared memory per block */
  const void* const* arguments;   /**< argument_count pointers to the values, in order */
  const uint32_t* argument_sizes; /**< sizeof each value; checked against the kernel when known */
} ctxb_launch;

/** The functions of CTXB_EXT_GPU. */
typedef struct ctxb_gpu_extension {
  uint32_t size;

  /** Finds a kernel of one of the descriptor's modules. `module` may be null if there is only one
   * module. If the module has no such kernel, get_kernel returns CTXB_ERROR_NOT_FOUND, and the
   * error text lists the kernels that there are.
   * [main] [ctx]; in activate */
  ctxb_status (*get_kernel)(const ctxb_host* host, const char* module, const char* name,
                            const ctxb_kernel** kernel);

  /** Finds the address and the size, in bytes, of a module's __device__ or __constant__ variable;
   * CTXB_ERROR_NOT_FOUND if there is none.
   * [main] [ctx]; in activate */
  ctxb_status (*get_global)(const ctxb_host* host, const char* module, const char* name,
                            uint64_t* address, uint64_t* bytes);

  /** Allocates device memory, aligned to at least 256 bytes. Its content is undefined. `bytes` is
   * at least 1.
   * [main] [ctx]; in activate */
  ctxb_status (*allocate)(const ctxb_host* host, uint64_t bytes, uint64_t* address);

  /** Gives back what allocate returned. 0 does nothing. The host refuses any other address that is
   * not this plug-in's.
   * [main] [ctx]; in activate or deactivate */
  ctxb_status (*release)(const ctxb_host* host, uint64_t address);

  /** Enqueues a launch. The arguments may be reused when the call returns.
   * [render|audio] [ctx] [no-sync]; also in activate */
  ctxb_status (*launch)(const ctxb_host* host, const ctxb_launch* launch);

  /** Copies `bytes` from host memory to the device. The source may be reused when the call returns.
   * In process, it enqueues the copy, and the uploads of one call of process are at most
   * CTXB_UPLOAD_MAX bytes in all. In activate, it waits for the copy, and there is no limit.
   * [render|audio] [ctx] [no-sync]; also in activate */
  ctxb_status (*upload)(const ctxb_host* host, void* stream, uint64_t destination,
                        const void* source, uint64_t bytes);

  /** Enqueues a fill of `bytes` at `destination` with zeros. `bytes` and `destination`
   * are multiples of 4.
   * [render|audio] [ctx] [no-sync]; also in activate */
  ctxb_status (*clear)(const ctxb_host* host, void* stream, uint64_t destination, uint64_t bytes);

  /** Enqueues a copy between two places in device memory, which must not overlap.
   * [render|audio] [ctx] [no-sync]; also in activate */
  ctxb_status (*copy)(const ctxb_host* host, void* stream, uint64_t destination, uint64_t source,
                      uint64_t bytes);
} ctxb_gpu_extension;

/** The most bytes that one `process` may upload, all its uploads together. */
#define CTXB_UPLOAD_MAX 65536u

/** Host's side: launches with attributes and with packed arguments, and what the driver knows about
 * a kernel. The kernels and the rules for handles are those of CTXB_EXT_GPU. If the host fills a
 * struct, the caller sets its `size`, and the host fills the members that both sides know. */
#define CTXB_EXT_LAUNCH "ctxbroker.launch/1"

/** The blocks may wait for each other (grid synchronisation). All of them must fit on the lease's
 * multiprocessors at once. */
#define CTXB_LAUNCH_COOPERATIVE (1u << 0)
/** The launch may begin before the work ahead of it in the stream has ended. The kernel itself
 * waits before it needs the results of that work (griddepcontrol.wait,
 * cudaGridDependencySynchronize). It has no effect on devices below compute capability 9.0. */
#define CTXB_LAUNCH_PROGRAMMATIC (1u << 1)
/** The launch has the priority that ctxb_launch_options.priority says. */
#define CTXB_LAUNCH_PRIORITY (1u << 2)

/** How to launch. If an argument's size differs from the kernel's, launch returns
 * CTXB_ERROR_INVALID_ARGUMENT, and the error text has the argument's number. In the packed form,
 * ctxb_launch.arguments is null, and argument_count, argument_sizes and argument_offsets say what
 * lies where in `packed`. If argument_count is 0, only the length is checked. */
typedef struct ctxb_launch_options {
  uint32_t size;
  uint32_t flags;        /**< CTXB_LAUNCH_* */
  uint32_t cluster[3];   /**< blocks of a cluster, which divides the grid. All 0: no clusters */
  int32_t priority;      /**< as for CUDA streams: a lower number goes first */
  const void* packed;    /**< all arguments in one piece, each at a multiple of its type's alignment
                            from the beginning; null: ctxb_launch.arguments is used */
  uint64_t packed_bytes; /**< of `packed`, up to the end of the last argument or of a struct
                            that holds them all */
  const uint32_t* argument_offsets; /**< of the arguments in `packed`; null: not compared */
} ctxb_launch_options;

/** For ctxb_kernel_info.argument_count: the driver does not tell how many arguments there are. */
#define CTXB_ARGUMENTS_UNKNOWN UINT32_MAX

/** What the driver knows about a kernel on the lease's device. Sizes are in bytes. */
typedef struct ctxb_kernel_info {
  uint32_t size;
  uint32_t argument_count;       /**< or CTXB_ARGUMENTS_UNKNOWN */
  uint32_t argument_bytes;       /**< size of the packed form */
  uint32_t block_threads;        /**< most threads of one block */
  uint32_t registers;            /**< of one thread */
  uint32_t static_shared_bytes;  /**< of one block */
  uint32_t dynamic_shared_bytes; /**< the most for a launch; the host opts in above 48 KiB */
  uint32_t local_bytes;          /**< of one thread */
  uint32_t constant_bytes;       /**< of the kernel's own */
  uint32_t ptx_version;          /**< compute capability that the PTX was made for, times ten */
  uint32_t binary_version;       /**< the machine code's, the same way */
} ctxb_kernel_info;

/** Where one argument of a kernel lies, and how large it is. */
typedef struct ctxb_kernel_argument {
  uint32_t size;
  uint32_t offset; /**< in the packed form */
  uint32_t bytes;
} ctxb_kernel_argument;

/** The functions of CTXB_EXT_LAUNCH. */
typedef struct ctxb_launch_extension {
  uint32_t size;

  /** Enqueues a launch. `options` may be null. If a launch exceeds a limit, the host refuses it and
   * names the limit: CTXB_ERROR_INVALID_ARGUMENT, or CTXB_ERROR_UNSUPPORTED if the device can never
   * do it.
   * [render|audio] [ctx] [no-sync]; also in activate */
  ctxb_status (*launch)(const ctxb_host* host, const ctxb_launch* launch,
                        const ctxb_launch_options* options);

  /** Describes a kernel.
   * [main|render] [ctx]; while active */
  ctxb_status (*get_kernel_info)(const ctxb_host* host, const ctxb_kernel* kernel,
                                 ctxb_kernel_info* info);

  /** Describes argument `index`, from 0. CTXB_ERROR_UNAVAILABLE if the driver does not tell.
   * [main|render] [ctx]; while active */
  ctxb_status (*get_argument)(const ctxb_host* host, const ctxb_kernel* kernel, uint32_t index,
                              ctxb_kernel_argument* argument);

  /** Finds the block size with which most threads run at once, and the fewest such blocks that fill
   * the lease's multiprocessors. Blocks have `shared_bytes` of dynamic shared memory and at most
   * `most_threads` threads (0: any number).
   * [main|render] [ctx]; while active */
  ctxb_status (*get_best_block)(const ctxb_host* host, const ctxb_kernel* kernel,
                                uint32_t shared_bytes, uint32_t most_threads,
                                uint32_t* block_threads, uint32_t* grid_blocks);

  /** Tells how many such blocks run on one multiprocessor at once.
   * [main|render] [ctx]; while active */
  ctxb_status (*get_active_blocks)(const ctxb_host* host, const ctxb_kernel* kernel,
                                   uint32_t block_threads, uint32_t shared_bytes, uint32_t* blocks);

  /** Tells how many clusters of this launch run at once. Its arguments are not used.
   * [main|render] [ctx]; while active */
  ctxb_status (*get_active_clusters)(const ctxb_host* host, const ctxb_launch* launch,
                                     const ctxb_launch_options* options, uint32_t* clusters);
} ctxb_launch_extension;

/** Host's side: the current CUDA context, for plug-ins with CTXB_CUDA_DRIVER or _RUNTIME. */
#define CTXB_EXT_NATIVE_CONTEXT "ctxbroker.native-context/1"

/** The function of CTXB_EXT_NATIVE_CONTEXT. */
typedef struct ctxb_native_context_extension {
  uint32_t size;
  /** Gets the CUcontext of the lease, which is current on the calling thread, and the lease's
   * device. It is what cuCtxGetCurrent returns: behind the gate, the same handle on every thread.
   * The context belongs to the host: never destroy it, and never make it current.
   * [any] [ctx] */
  ctxb_status (*get)(const ctxb_host* host, void** context, int32_t* device);
} ctxb_native_context_extension;

/** Host's side: tells which thread is calling, for assertions in plug-ins. */
#define CTXB_EXT_THREAD_CHECK "ctxbroker.thread-check/1"

/** The functions of CTXB_EXT_THREAD_CHECK. */
typedef struct ctxb_thread_check_extension {
  uint32_t size;
  /** Returns 1 on the [main] thread, else 0.
   * [any] */
  uint32_t (*is_main_thread)(const ctxb_host* host);
  /** Returns 1 inside this instance's process call, else 0.
   * [any] */
  uint32_t (*is_process_thread)(const ctxb_host* host);
} ctxb_thread_check_extension;

/** Plug-in's side: what it wants to remember beyond its parameters, as a stream of bytes. */
#define CTXB_EXT_STATE "ctxbroker.state/1"

/** Where save writes the state, piece by piece. It is lent until save returns; after that, write
 * returns -1, and counts as a strike. */
typedef struct ctxb_output_stream {
  uint32_t size;
  void* data; /**< the host's own */
  /** Takes 1 to `bytes` bytes and returns how many, or -1 when it cannot take any. */
  int64_t (*write)(const struct ctxb_output_stream* stream, const void* source, uint64_t bytes);
} ctxb_output_stream;

/** Where load reads the state from, piece by piece. It is lent until load returns; after that, read
 * returns -1, and counts as a strike. */
typedef struct ctxb_input_stream {
  uint32_t size;
  void* data; /**< the host's own */
  /** Fills 1 to `bytes` bytes and returns how many; 0 at the end, -1 on an error. After a short
   * read, read again. */
  int64_t (*read)(const struct ctxb_input_stream* stream, void* destination, uint64_t bytes);
} ctxb_input_stream;

/** The functions of CTXB_EXT_STATE. */
typedef struct ctxb_state_extension {
  uint32_t size;
  /** Writes the state. The instance is not active.
   * [main] [no-ctx] */
  ctxb_status (*save)(const ctxb_plugin* plugin, const ctxb_output_stream* stream);
  /** Reads what save wrote. The instance is not active. If load fails, the state is unchanged.
   * [main] [no-ctx] */
  ctxb_status (*load)(const ctxb_plugin* plugin, const ctxb_input_stream* stream);
} ctxb_state_extension;

/** Plug-in's side: latency and tail, in frames. The host delays what runs beside the plug-in, so
 * that everything stays aligned where it meets. A latency that has to change waits for the next
 * activation: ask for that with ctxb_host.request_restart. */
#define CTXB_EXT_LATENCY "ctxbroker.latency/1"

/** The largest latency that a host has to take, in frames. */
#define CTXB_LATENCY_MAX (1u << 28)

/** A tail that never ends. */
#define CTXB_TAIL_INFINITE UINT64_MAX

/** The functions of CTXB_EXT_LATENCY. */
typedef struct ctxb_latency_extension {
  uint32_t size;
  /** Returns by how many frames the output is late. The instance is active. The answer is constant
   * for one activation.
   * [main] [no-ctx] */
  uint64_t (*latency)(const ctxb_plugin* plugin);
  /** Returns for how many frames the output goes on after the input ends; CTXB_TAIL_INFINITE: for
   * ever. Otherwise as latency.
   * [main] [no-ctx] */
  uint64_t (*tail)(const ctxb_plugin* plugin);
} ctxb_latency_extension;

/** Plug-in's side: an image plug-in that needs frames around the job's own one. The host gives all
 * of them with the job, see ctxb_buffer.frames. Beyond the ends of a sequence, the host repeats the
 * frame at the end. An instance may be asked for the same frame several times. */
#define CTXB_EXT_FRAMES "ctxbroker.frames/1"

/** The most frames before the job's own one, and the most after it. */
#define CTXB_FRAMES_MAX 64

/** The function of CTXB_EXT_FRAMES. */
typedef struct ctxb_frames_extension {
  uint32_t size;
  /** Says which frames of an input each job needs, as distances from the job's frame: -1 and 1 for
   * the frames before and after it. *first is at most 0 and *last at least 0; both are 0 before the
   * call. The instance is active. The answer is constant for one activation.
   * [main] [no-ctx] */
  ctxb_status (*get_frames)(const ctxb_plugin* plugin, uint32_t input, int32_t* first,
                            int32_t* last);
} ctxb_frames_extension;

/** Plug-in's side: an image plug-in that can work on a part of a picture, or whose output has
 * another extent than its inputs. The host asks which part of each input it needs for a part of an
 * output, so that it can render by tile. What a tile shows must not depend on the tile's borders.
 *
 * Without this extension and CTXB_PLUGIN_PER_PIXEL, the plug-in gets whole pictures, all of the
 * same extent, and puts out whole ones. A plug-in that puts out results gets whole pictures, too.
 */
#define CTXB_EXT_REGIONS "ctxbroker.regions/1"

/** What a question is about. It is lent until the call returns. */
typedef struct ctxb_region_question {
  uint32_t size;
  uint32_t input_count;          /**< the descriptor's */
  const ctxb_rectangle* extents; /**< of each input; width 0: it is not connected */
  int64_t position;              /**< the number of the frame */
  const ctxb_value* parameters;  /**< as in the job */
  uint32_t parameter_count;
} ctxb_region_question;

/** The functions of CTXB_EXT_REGIONS. */
typedef struct ctxb_regions_extension {
  uint32_t size;
  /** Says how large an output is. Before the call, *extent is that of the first connected input, or
   * the job's if there is none. The answer has at least one pixel, and coordinates from -2^30 to
   * 2^30. The instance is active. The answer depends on nothing but the question and what the
   * plug-in knows since activate.
   * [main|render] [no-ctx] */
  ctxb_status (*get_extent)(const ctxb_plugin* plugin, const ctxb_region_question* question,
                            uint32_t output, ctxb_rectangle* extent);
  /** Says which part of an input process needs for the part `wanted` of an output. Before the call,
   * *needed is the whole input. The answer has at least one pixel and lies inside the input's
   * extent. process then gets just that part; for several outputs, the smallest rectangle around
   * what they need. The host asks only about connected inputs. Otherwise as get_extent.
   * [main|render] [no-ctx] */
  ctxb_status (*get_region)(const ctxb_plugin* plugin, const ctxb_region_question* question,
                            uint32_t output, const ctxb_rectangle* wanted, uint32_t input,
                            ctxb_rectangle* needed);
} ctxb_regions_extension;

/** Plug-in's side: turns a parameter's value into text for people, and back. If a function returns
 * CTXB_ERROR_UNSUPPORTED, the host does it in its own way: it prints and reads numbers with their
 * unit, and names of choices. The host never asks for a STRING or a FILE, which are text already.
 */
#define CTXB_EXT_PARAMETER_TEXT "ctxbroker.parameter-text/1"

/** The functions of CTXB_EXT_PARAMETER_TEXT. */
typedef struct ctxb_parameter_text_extension {
  uint32_t size;
  /** Writes a value as text: at most `bytes` bytes, with the 0 at the end. `bytes` is at least 256.
   * [main] [no-ctx] */
  ctxb_status (*to_text)(const ctxb_plugin* plugin, uint32_t parameter, const ctxb_value* value,
                         char* text, uint64_t bytes);
  /** Reads a value from what a person wrote. The host sets value->size and value->type, and checks
   * the numbers that the plug-in puts into it.
   * [main] [no-ctx] */
  ctxb_status (*from_text)(const ctxb_plugin* plugin, uint32_t parameter, const char* text,
                           ctxb_value* value);
} ctxb_parameter_text_extension;

/** Plug-in's side: a call on the main thread after ctxb_host.request_callback. */
#define CTXB_EXT_CALLBACK "ctxbroker.callback/1"

/** The function of CTXB_EXT_CALLBACK. */
typedef struct ctxb_callback_extension {
  uint32_t size;
  /** Called some time after ctxb_host.request_callback.
   * [main] [no-ctx] */
  void (*on_main_thread)(const ctxb_plugin* plugin);
} ctxb_callback_extension;

#ifdef __cplusplus
}
#endif
#endif /* CTXBROKER_PLUGIN_EXTENSIONS_H */
