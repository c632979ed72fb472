// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * ctxbroker plug-in ABI, version 1.0: everything that a host and a plug-in library say to each
 * other.
 *
 * A plug-in library exports ONE data symbol, `ctxb_plugin_entry`. It leads the host to a factory.
 * The factory gives descriptors and creates instances. Most authors use plugin.hpp, which wraps
 * this header for C++. A library may use both. plugin_parameters.h describes parameters, and
 * plugin_extensions.h what else the two sides may offer each other.
 *
 * LIFE OF A LIBRARY AND OF AN INSTANCE
 *   1. The host loads the library and reads `size` and `abi_major` of the entry. If they do not
 *      fit, it calls nothing.
 *   2. entry.init(path). It makes no CUDA call. The host may call it several times.
 *   3. entry.get_factory(CTXB_PLUGIN_FACTORY_ID). The descriptors are static data. A host that only
 *      looks for plug-ins stops here, so looking is cheap and needs no GPU.
 *   4. factory.create(index, host) returns an instance.
 *   5. instance.activate(activation). This is the ONLY place to allocate or to look up kernels.
 *   6. instance.process(job), any number of times. It enqueues on the job's stream and returns. It
 *      never allocates, never synchronises and never waits.
 *   7. instance.deactivate(). Then activate may follow again, with other sizes or a new context.
 *   8. instance.destroy(). After the last instance: entry.deinit(), once for each init.
 *   The host may call context_lost at any time after activate. Every handle of that activation is
 *   then dead, and the plug-in makes no GPU call in context_lost. The host calls deactivate, and
 *   activate again if it can give another context.
 *
 * TAGS, in the last line above every function
 *   thread:  [main]   the host's main thread, or another thread, but only one thread at a time for
 *                     all plug-ins of a library. Only on_main_thread, latency, tail, to_text and
 *                     from_text may be called while process runs
 *            [render] one thread at a time per instance; may wait for memory, must not wait for I/O
 *            [audio]  as [render], and real-time: no lock, no allocation, no system call that waits
 *            [any]    any thread, several at once
 *            [render|audio], [main|render]: the function may be called under either tag
 *   context: [ctx]     a CUDA context of the plug-in's lease is current during the call
 *            [no-ctx]  no context is current; make no CUDA call
 *            [balanced] leave the context stack as you found it (every [ctx] function is balanced)
 *            [no-sync] must not wait for the device
 *   The host checks the tags that it can check, and names the plug-in that broke one.
 *
 * RULES FOR EVERY STRUCT AND FUNCTION
 *   - `size` comes first: sizeof the struct in the header of the side that FILLED it. Versions only
 *     append members. Before you read a member that is newer than version 1.0, ask CTXB_HAS.
 *   - Text is UTF-8, ends with 0, and belongs to the side that handed it out. Unless a comment says
 *     otherwise, it is valid during the call; copy it to keep it.
 *   - No exception leaves a function of this header, and neither does a longjmp.
 *   - Everything lent in a call (jobs, buffers, streams, arrays) is dead after the call returns.
 *   - No side keeps a pointer into the other side's memory beyond the call, so that the host can
 *     run the same library in a process of its own.
 *
 * VERSIONS. Libraries and hosts with equal `abi_major` work together, whatever their minors. Each
 * side finds out what the other one has (CTXB_HAS, a null extension).
 *
 * This header compiles as C11, C++11 and later, and needs no CUDA header.
 */
#ifndef CTXBROKER_PLUGIN_H
#define CTXBROKER_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include "ctxbroker/plugin_events.h"
#include "ctxbroker/plugin_modules.h"
#include "ctxbroker/plugin_parameters.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CTXB_ABI_MAJOR 1
#define CTXB_ABI_MINOR 0

#if defined(_WIN32)
#define CTXB_EXPORT __declspec(dllexport)
#else
#define CTXB_EXPORT __attribute__((visibility("default")))
#endif

/** True when the side that filled the struct behind `pointer` knew `member`. */
#define CTXB_HAS(pointer, type, member) \
  ((pointer)->size >= offsetof(type, member) + sizeof((pointer)->member))

/* ---- Status ---------------------------------------------------------------------------------
 * 0 is success. A positive value is soft: nothing is broken. A negative value is an error; say more
 * about it with ctxb_host.fail before you return it. Values are never reused. */
typedef int32_t ctxb_status;

#define CTXB_OK 0
/** Only from process: not ready, and the output was not written. The host waits until the work that
 * this call has enqueued is done, and gives the same job once more. If process returns CTXB_AGAIN
 * for the second time, the job fails. Use it for something that the work on the device makes ready;
 * on an [audio] thread, the wait costs part of the deadline. */
#define CTXB_AGAIN 1
/** The plug-in has nothing to do for this job, and enqueued nothing. The host copies the first
 * input to each output that is an image or audio, and fills results with zeros. A plug-in with
 * latency may not return it, because the copy would be early. */
#define CTXB_BYPASS 2
#define CTXB_ERROR (-1)                      /**< anything without a code of its own */
#define CTXB_ERROR_INVALID_ARGUMENT (-2)     /**< the caller broke this header's contract */
#define CTXB_ERROR_UNSUPPORTED (-3)          /**< impossible with this plug-in, host or device */
#define CTXB_ERROR_UNAVAILABLE (-4)          /**< possible, but not now */
#define CTXB_ERROR_OUT_OF_DEVICE_MEMORY (-5) /**< the host may free device memory and try again */
#define CTXB_ERROR_OUT_OF_HOST_MEMORY (-6)   /**< the process is short of memory of its own */
#define CTXB_ERROR_NO_KERNEL_IMAGE (-7)      /**< no image of the module runs on this device */
#define CTXB_ERROR_CONTEXT_LOST (-8)         /**< the lease's context is gone: activate again */
#define CTXB_ERROR_DEADLINE (-9) /**< the job could not be enqueued within deadline_ns */
#define CTXB_ERROR_VERSION (-10) /**< an unknown version of the ABI, an extension or the state */
#define CTXB_ERROR_WRONG_STATE (-11) /**< called in the wrong phase of the life cycle */
#define CTXB_ERROR_DRIVER (-12)      /**< a CUDA driver call failed: see ctxb_host.fail */
#define CTXB_ERROR_NOT_FOUND (-13)   /**< the module has no kernel or variable of that name */
/** The system gives the process no more descriptors, threads or mappings: close some of them, or
 * raise the process's limits. */
#define CTXB_ERROR_SYSTEM_LIMIT (-14)

/* ---- Media and ports ------------------------------------------------------------------------
 * A plug-in processes one media. Its ports are the buffers that it reads and writes in each job. A
 * plug-in without inputs is a generator, and one that only writes results is an analyser. */
#define CTXB_MEDIA_IMAGE 1   /**< linear light, pixels interleaved, straight (unassociated) alpha */
#define CTXB_MEDIA_AUDIO 2   /**< planar, channel after channel; full scale is 1.0 */
#define CTXB_MEDIA_RESULTS 3 /**< an analyser's block of bytes; only in buffers, see ctxb_port */

/** Sample types of images. Audio is always CTXB_SAMPLE_FLOAT. */
#define CTXB_SAMPLE_FLOAT (1u << 0) /**< 32 bits */
#define CTXB_SAMPLE_HALF (1u << 1)  /**< 16 bits, IEEE 754 */

/** A rectangle of pixels. The pixels of a picture may have negative coordinates; y grows from row
 * to row. This struct never grows. */
typedef struct ctxb_rectangle {
  int32_t x, y; /**< its first pixel */
  uint32_t width, height;
} ctxb_rectangle;

/** One lent buffer in device memory. A sample has 4 bytes, or 2 if it is CTXB_SAMPLE_HALF.
 * Image: sample c of pixel (x, y) is at data + y * row_pitch + (x * channels + c) * (bytes of a
 *        sample), with x < width, y < height, c < channels.
 * Audio: sample i of channel c is at data + c * row_pitch + i * 4, with i < width (the block's
 *        frames) and c < height (the channels); `channels` is 1.
 * Results: `width` bytes at data; height and channels are 1. */
typedef struct ctxb_buffer {
  uint32_t size;
  uint32_t media; /**< CTXB_MEDIA_* */
  /** Device address, valid in the plug-in's own lease. It is a multiple of 16, unless the buffer is
   * a part of a larger image. Then it is only a multiple of a pixel's bytes (with 3 channels, of a
   * sample's). 0: the port is optional and not connected, and the other members are 0 too. */
  uint64_t data;
  uint64_t row_pitch; /**< bytes from one row (image: a multiple of a pixel's bytes, so that a pixel
                         can be moved at once) or channel (audio: a multiple of 4) to the next */
  uint32_t width;     /**< pixels in a row, or frames in the block; at least 1 */
  uint32_t height;    /**< rows, or channels; at least 1 */
  uint32_t channels;  /**< samples of a pixel: 1 for audio */
  uint32_t samples;   /**< CTXB_SAMPLE_FLOAT or _HALF; 0 for results */
  int64_t position;   /**< of an image: the number of its frame; else that of the job */
  /** If the plug-in needs several frames of this input (CTXB_EXT_FRAMES), these are all of them:
   * frame_count buffers, in the order of their frames; step is frames[0].size. This buffer, for the
   * job's own frame, is one of them. Otherwise null and 0. */
  const struct ctxb_buffer* frames;
  uint32_t frame_count;
  int32_t x, y;          /**< of an image: where its first pixel is in the picture */
  ctxb_rectangle extent; /**< of an image: the whole picture. The buffer holds all of it, unless the
                            plug-in has CTXB_EXT_REGIONS or is CTXB_PLUGIN_PER_PIXEL */
} ctxb_buffer;

/** The host may leave the port unconnected. */
#define CTXB_PORT_OPTIONAL (1u << 0)
/** An audio input that is listened to, as the key of a compressor, and is not part of the mix. For
 * CTXB_BYPASS and for the format of outputs, it never counts as the first input. */
#define CTXB_PORT_SIDE_CHAIN (1u << 1)
/** An output that is `result_bytes` bytes of the plug-in's own instead of an image or audio. The
 * host downloads them and hands them on. */
#define CTXB_PORT_RESULTS (1u << 2)

/** Bits for ctxb_port.channels; combine them with |. */
#define CTXB_CHANNELS(count) (1u << ((count)-1u)) /**< count: 1 to 32 */
#define CTXB_CHANNELS_ANY UINT32_MAX

/** One input or output of a plug-in: static data. Its index is its position in the descriptor's
 * table. If a port takes several formats, the host chooses one for the life of a graph, and every
 * buffer says which. The host prefers for an output what the first connected input has. */
typedef struct ctxb_port {
  uint32_t size;
  uint32_t flags;    /**< CTXB_PORT_* */
  const char* id;    /**< [a-z0-9_]+, unique among the plug-in's inputs or its outputs, for ever */
  const char* name;  /**< for people */
  uint32_t channels; /**< CTXB_CHANNELS...: how many samples a pixel has, or how many channels audio
                        has; 0 for results */
  uint32_t samples;  /**< CTXB_SAMPLE_*, combined with |; 0 for results */
  uint32_t result_bytes; /**< of CTXB_PORT_RESULTS, 1 to 65536; else 0 */
  uint32_t in_place;     /**< of an output: the host may give it the same buffer as input number
                            in_place - 1, if their formats are equal. 0: never. It has no effect
                            with CTXB_EXT_REGIONS, because the buffers then differ in size */
} ctxb_port;

/* ---- Descriptor -----------------------------------------------------------------------------*/

/** How the plug-in uses CUDA. Each of these may have modules, which the host loads. */
#define CTXB_CUDA_KERNELS 1 /**< modules and launches through the host; links no CUDA library */
#define CTXB_CUDA_DRIVER 2  /**< also calls the driver API in the lent context */
#define CTXB_CUDA_RUNTIME 3 /**< also calls cudart, cuBLAS, cuFFT, Thrust, ... */

/** Which lease the plug-in would like; the host decides. */
#define CTXB_LEASE_AUTO 0
#define CTXB_LEASE_SHARED 1  /**< the device's primary context, shared with others */
#define CTXB_LEASE_PRIVATE 2 /**< a context of the plug-in's own */
#define CTXB_LEASE_GREEN 3   /**< a green context: its own streams, perhaps its own SMs */
#define CTXB_LEASE_WORKER 4  /**< a process of its own, if the host uses some; else as AUTO */

/** How many instances may be in `process` at once. */
#define CTXB_CONCURRENCY_INSTANCES 0 /**< any number, each on one thread at a time */
#define CTXB_CONCURRENCY_LIBRARY 1   /**< one at a time in the whole library */

#define CTXB_PLUGIN_UNLOADABLE (1u << 0) /**< the library may be unloaded after the last deinit */
#define CTXB_PLUGIN_REALTIME (1u << 1)   /**< process keeps the [audio] rules */
#define CTXB_PLUGIN_PER_THREAD_STREAM (1u << 2) /**< uses CU_STREAM_PER_THREAD; excludes green */
/** The plug-in works on NVIDIA's driver only, because it uses CUDA libraries that do (cudart,
 * cuBLAS, cuFFT, ...). A host on another driver lists the plug-in as needing a GPU and does not
 * create it. A host that does not know this flag ignores it, and then activate fails. */
#define CTXB_PLUGIN_NEEDS_NVIDIA_DRIVER (1u << 3)
/** Each pixel of an image that the plug-in puts out depends only on the pixels at the same place of
 * its inputs. The host may then give parts of pictures. All images of a job are the same part. */
#define CTXB_PLUGIN_PER_PIXEL (1u << 4)
/** The library's own driver calls share device memory in ways that memory of a pool does not
 * support: by legacy IPC handles (cuIpcGetMemHandle), or through GPUDirect RDMA. So the host takes
 * the device memory of the whole library from the driver, unless the user has chosen a pool for
 * this plug-in. A host that does not know this flag ignores it. */
#define CTXB_PLUGIN_DRIVER_MEMORY (1u << 5)

/** What a plug-in is: static data of the library, which is the same at every call. The host copies
 * it when it loads the library. */
typedef struct ctxb_plugin_descriptor {
  uint32_t size;
  uint32_t media;   /**< CTXB_MEDIA_IMAGE or _AUDIO: what it processes */
  const char* id;   /**< reverse DNS, for ever: "com.example.exposure" */
  const char* name; /**< for people: "Exposure" */
  const char* vendor;
  const char* version;         /**< "1.2.3" */
  const char* description;     /**< one sentence */
  const char* const* features; /**< "blur", "equaliser", ...; ending with null, or null */
  uint32_t flags;              /**< CTXB_PLUGIN_* */
  uint32_t cuda_use;           /**< CTXB_CUDA_* */
  uint32_t lease;              /**< CTXB_LEASE_* */
  uint32_t concurrency;        /**< CTXB_CONCURRENCY_* */
  uint32_t min_compute_major, min_compute_minor; /**< least compute capability; 0.0: any */
  const ctxb_parameter* parameters; /**< parameter_count of them; step is parameters[0].size */
  uint32_t parameter_count;
  uint32_t module_count;
  const ctxb_module* modules; /**< module_count of them; step is modules[0].size */
  const ctxb_port* inputs;    /**< input_count of them; step is inputs[0].size */
  const ctxb_port* outputs;   /**< output_count of them; step is outputs[0].size */
  uint32_t input_count;
  uint32_t output_count; /**< at least 1 */
} ctxb_plugin_descriptor;

/* ---- Host -----------------------------------------------------------------------------------*/

/** How serious a line of the host's log is. */
#define CTXB_LOG_DEBUG 0
#define CTXB_LOG_INFO 1
#define CTXB_LOG_WARNING 2
#define CTXB_LOG_ERROR 3

typedef struct ctxb_host ctxb_host;
/** What the host offers one instance. It is valid from create until destroy has returned. After
 * that, the struct can still be read, and each call of a function of it, or of the host's side of
 * an extension, is refused and counts as a strike. So end the plug-in's threads in destroy at the
 * latest. A refused function that returns a status returns CTXB_ERROR_WRONG_STATE. */
struct ctxb_host {
  uint32_t size;
  uint16_t abi_major, abi_minor; /**< the host's */
  const char* name;              /**< valid as long as the host struct */
  const char* version;

  /** Returns the host's side of an extension ("ctxbroker.gpu/1"), or null when it has none. The
   * answer is valid as long as the host struct and does not change.
   * [any] [balanced] */
  const void* (*get_extension)(const ctxb_host* host, const char* id);

  /** Writes one line to the host's log, under the plug-in's name. The text is copied before the
   * return.
   * [any] [balanced]; not from [audio] */
  void (*log)(const ctxb_host* host, uint32_t severity, const char* text);

  /** Says why the function that is running is about to return `status`. If it is called several
   * times, the last call counts. The text is copied before the return. driver_status is the
   * CUresult, or 0. Returns `status`, so that one can write: return host->fail(host, ...).
   * [any] [balanced] */
  ctxb_status (*fail)(const ctxb_host* host, ctxb_status status, int32_t driver_status,
                      const char* text);

  /** Asks the host to call the instance's extension CTXB_EXT_CALLBACK soon, on the main thread.
   * [any] [balanced] */
  void (*request_callback)(const ctxb_host* host);

  /** Asks the host to deactivate the instance and to activate it again, because something has to
   * change that is constant for an activation, such as the latency. The host does so when it suits.
   * Until then, go on as before. The next activate withdraws the request.
   * [any] [balanced] */
  void (*request_restart)(const ctxb_host* host);
};

/* ---- Activation -----------------------------------------------------------------------------*/

/** The device, and the largest jobs, that an instance has to be ready for until deactivate. It is
 * lent until activate returns. */
typedef struct ctxb_activation {
  uint32_t size;
  int32_t device; /**< CUDA device ordinal */
  uint32_t compute_major, compute_minor;
  uint64_t generation;    /**< the number of the lease's context; a later one is larger */
  uint64_t memory_budget; /**< bytes of device memory the instance may allocate; 0: no limit */
  uint32_t max_width, max_height; /**< largest buffer extents that process will be given */
  uint32_t realtime;              /**< 1: process will be called on an [audio] thread */
  double sample_rate;             /**< Hz; 0 for images */
  void* stream;                 /**< CUstream of the lease, for uploads and clears in activate; the
                                   first job is ordered after what is enqueued on it */
  const ctxb_value* parameters; /**< snapshot, descriptor's order, each within its range; step is
                                   parameters[0].size */
  uint32_t parameter_count;
} ctxb_activation;

/* ---- Job ------------------------------------------------------------------------------------*/

/** One image, or one block of audio. Everything in it is lent until process returns. */
typedef struct ctxb_job {
  uint32_t size;
  uint32_t parameter_count;
  void* stream;                 /**< CUstream of the plug-in's lease: enqueue here and only here */
  int64_t position;             /**< frame number (image) or first sample (audio) on the timeline */
  double sample_rate;           /**< Hz; 0 for images */
  uint64_t deadline_ns;         /**< time the whole job may take; 0: offline, as long as it needs */
  const ctxb_value* parameters; /**< a snapshot, at the first frame; descriptor's order, each within
                                   its range; step is parameters[0].size */
  const ctxb_buffer* inputs;  /**< one for each of the descriptor's inputs, in their order; step is
                                 inputs[0].size */
  const ctxb_buffer* outputs; /**< one for each of the descriptor's outputs, every byte to be
                                 written */
  uint32_t input_count, output_count; /**< the descriptor's */
  uint32_t discontinuity;             /**< 1: it does not follow the last job; forget the history */
  uint32_t event_count;
  /** What changes within the block, in the order of the offsets; step is events[0].size. Images
   * have none. */
  const ctxb_parameter_event* events;
  const ctxb_transport* transport; /**< null: the host has none */
} ctxb_job;

/* ---- Loss -----------------------------------------------------------------------------------
 * Why the context of an activation is gone, and whether this instance is to blame. */
#define CTXB_LOSS_GIVEN_UP 1 /**< the host gave the context up; the next activate gets another */
/** Somebody destroyed it, or its work waits for a neighbour's hung work; the next activate gets
 * another. */
#define CTXB_LOSS_DESTROYED 2
#define CTXB_LOSS_FAULT 3 /**< a kernel faulted: CUDA has ended in this process */
#define CTXB_LOSS_HUNG 4  /**< work exceeded its timeout; the host stops using the plug-in */

#define CTXB_GUILT_UNKNOWN 0 /**< work of others was in flight too, or may have been */
/** None of this instance's work was in flight, or the host gave the context up. */
#define CTXB_GUILT_INNOCENT 1
#define CTXB_GUILT_GUILTY 2 /**< only this instance's work was in flight */

/** What happened to the context of an activation. It is lent until context_lost returns. */
typedef struct ctxb_loss {
  uint32_t size;
  uint32_t reason;       /**< CTXB_LOSS_* */
  uint32_t guilt;        /**< CTXB_GUILT_* */
  int32_t driver_status; /**< CUresult, or 0 */
  const char* text;      /**< one sentence for a log; valid during the call */
} ctxb_loss;

/* ---- Instance -------------------------------------------------------------------------------*/
typedef struct ctxb_plugin ctxb_plugin;
/** One instance, as ctxb_plugin_factory.create makes it: the functions that the host calls, and a
 * pointer for the plug-in's own use. It is valid until destroy returns. */
struct ctxb_plugin {
  uint32_t size;
  void* data; /**< the plug-in's own */

  /** Allocates and looks up everything that process will need. After an error, the host calls
   * neither process nor deactivate, and gives back what was allocated.
   * [main] [ctx] */
  ctxb_status (*activate)(const ctxb_plugin* plugin, const ctxb_activation* activation);

  /** Enqueues the work of one job on job->stream. Buffers never alias, except where ctxb_port's
   * in_place allows it.
   * [render|audio] [ctx] [no-sync] */
  ctxb_status (*process)(const ctxb_plugin* plugin, const ctxb_job* job);

  /** Gives back what activate took. The device has finished every job. The host gives back what the
   * plug-in forgets.
   * [main] [ctx]; after context_lost [no-ctx] */
  void (*deactivate)(const ctxb_plugin* plugin);

  /** The last call. The instance is not active.
   * [main] [no-ctx] */
  void (*destroy)(const ctxb_plugin* plugin);

  /** The context of this activation is gone, with all its memory, kernels and streams. Forget every
   * handle, and call nothing. The host calls this once per loss, before any other function of the
   * plug-in. deactivate follows (with no context current), then perhaps activate. `loss` belongs to
   * the host.
   * [main] [no-ctx] */
  void (*context_lost)(const ctxb_plugin* plugin, const ctxb_loss* loss);

  /** Returns the plug-in's side of an extension, which is static data, or null.
   * [any] [no-ctx] */
  const void* (*get_extension)(const ctxb_plugin* plugin, const char* id);
};

/* ---- Factory and entry ----------------------------------------------------------------------*/
/** The id of ctxb_plugin_factory, for ctxb_plugin_entry_type.get_factory. */
#define CTXB_PLUGIN_FACTORY_ID "ctxbroker.plugin-factory/1"

/** Lists the plug-ins of a library, and creates instances of them. Static data. */
typedef struct ctxb_plugin_factory {
  uint32_t size;

  /** Returns how many plug-ins the library holds.
   * [any] [no-ctx] */
  uint32_t (*count)(void);

  /** Returns descriptor `index`, which is static data; null when there is none.
   * [any] [no-ctx] */
  const ctxb_plugin_descriptor* (*describe)(uint32_t index);

  /** Creates an instance, or returns null after ctxb_host.fail. `host` outlives the instance.
   * [main] [no-ctx] */
  const ctxb_plugin* (*create)(uint32_t index, const ctxb_host* host);
} ctxb_plugin_factory;

/** Where a host begins with a library: the type of ctxb_plugin_entry. */
typedef struct ctxb_plugin_entry_type {
  uint32_t size;
  uint16_t abi_major, abi_minor; /**< CTXB_ABI_MAJOR, CTXB_ABI_MINOR as the library was compiled */

  /** Called before anything else, and perhaps again. One deinit follows for each successful call.
   * It makes no CUDA call. `path` is the library's file. If it does not return CTXB_OK, the host
   * does not use the library.
   * [main] [no-ctx] */
  ctxb_status (*init)(const char* path);

  /** The opposite of init. After the last one, the library may be unloaded.
   * [main] [no-ctx] */
  void (*deinit)(void);

  /** Returns the factory with this id, which is static data, or null.
   * [any] [no-ctx] */
  const void* (*get_factory)(const char* id);
} ctxb_plugin_entry_type;

/** The one symbol that a plug-in library exports. */
extern CTXB_EXPORT const ctxb_plugin_entry_type ctxb_plugin_entry;

#ifdef __cplusplus
}
#endif

#include "ctxbroker/plugin_extensions.h"

#endif /* CTXBROKER_PLUGIN_H */
