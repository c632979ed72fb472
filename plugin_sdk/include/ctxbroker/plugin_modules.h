// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Modules: device code as data. plugin.h, which says what holds for all structs, includes this
 * header.
 *
 * The host loads each module into the plug-in's lease before activate and unloads it after
 * deactivate. A module's code is one image, or several parts that are linked into one, or CUDA C++
 * that is compiled on the user's machine, or a file that is watched while the plug-in is written.
 * An image is PTX text (from any compiler), a cubin, or a fatbin.
 */
#ifndef CTXBROKER_PLUGIN_MODULES_H
#define CTXBROKER_PLUGIN_MODULES_H

#include <stdint.h>

/** How the driver compiles PTX. Machine code is not affected. Zero in a member leaves it to the
 * driver. */
typedef struct ctxb_jit_options {
  uint32_t size;
  uint32_t flags;          /**< CTXB_JIT_* */
  uint32_t max_registers;  /**< limit on the registers of a thread */
  uint32_t optimisation;   /**< CTXB_JIT_LEVEL(0) to CTXB_JIT_LEVEL(4); the driver's own is 4 */
  uint32_t target;         /**< 10 * major + minor, with CTXB_JIT_TARGET_A or _F; 0: the device's */
  uint32_t loader_threads; /**< limit on threads that load machine code (CUDA 13.1 and later) */
  uint32_t log_bytes;      /**< size of each log; 0: 16 KiB; at most 1 MiB */
} ctxb_jit_options;

#define CTXB_JIT_DEBUG_INFO (1u << 0)
#define CTXB_JIT_LINE_INFO (1u << 1)
#define CTXB_JIT_VERBOSE (1u << 2) /**< registers, spills and the like, to the host's debug log */

#define CTXB_JIT_LEVEL(level) ((level) + 1u)
#define CTXB_JIT_TARGET_A (1u << 16) /**< sm_90a: that architecture alone */
#define CTXB_JIT_TARGET_F (1u << 17) /**< sm_100f: its family */

/** One of several images that are linked: relocatable PTX, cubin or fatbin (nvcc -rdc=true), or a
 * host object or library that contains such code. */
typedef struct ctxb_module_part {
  uint32_t size;
  const char* name;   /**< for error texts: "filter.cu" */
  const void* data;   /**< static data; or null, and a file */
  uint64_t data_size; /**< bytes */
  const char* file;   /**< path, as in ctxb_module; read where data is null */
  uint32_t checksum;  /**< of data, as in ctxb_module */
} ctxb_module_part;

/** CUDA C++, which NVRTC compiles for the device on which it runs. The user's machine has to have
 * NVRTC (libnvrtc.so of CUDA 12 or 13). */
typedef struct ctxb_cuda_source {
  uint32_t size;
  const char* name;           /**< for error texts: "filter.cu" */
  const char* text;           /**< UTF-8, ending with 0 */
  const char* const* options; /**< "-DTAPS=8", ...; ending with null, or null */
} ctxb_cuda_source;

/** The module is loaded at the first get_global, or at the first launch of one of its kernels. If
 * the host cannot see the image's kernels, it loads the module at the first get_kernel. Without
 * this flag, with CTXB_PLUGIN_REALTIME, and in an activation for real time, the host loads the
 * module before activate. */
#define CTXB_MODULE_ON_FIRST_USE (1u << 0)
/** The host looks at `file` before a job, at most five times a second. If the file has changed, the
 * job uses the new code. If the new code cannot be loaded, the host says why, once, and keeps the
 * old code. Kernels keep their handles. If the plug-in has asked for the address of a variable, it
 * is activated again. The flag has no effect with CTXB_PLUGIN_REALTIME or in an activation for real
 * time. */
#define CTXB_MODULE_DEVELOPMENT (1u << 1)

/** One of data, parts, source and file gives the code. If `file` is set beside one of the others,
 * the host uses the file as long as it exists. */
typedef struct ctxb_module {
  uint32_t size;
  const char* name;               /**< unique in the plug-in; "exposure" */
  const void* data;               /**< PTX text (ending with 0), cubin or fatbin; static data */
  uint64_t data_size;             /**< bytes */
  const char* const* kernels;     /**< names, ending with null; or null: all that the image holds */
  uint32_t flags;                 /**< CTXB_MODULE_* */
  uint32_t part_count;            /**< of parts */
  const ctxb_module_part* parts;  /**< linked in this order; step is parts[0].size */
  const ctxb_cuda_source* source; /**< compiled */
  const char* file;            /**< path of an image or of a .cu file; a relative path starts at the
                                  folder of the plug-in's library */
  const ctxb_jit_options* jit; /**< null: the driver's defaults */
  /** Checksum of `data`, as POSIX cksum prints it for a file of these bytes; 0: none. With it, the
   * host refuses damaged machine code. Without it, the driver may crash on such code.
   * ctxb_add_plugin fills it in. */
  uint32_t checksum;
  /** NVRTC's options for a .cu file ("-I/home/me/common", ...), after those of `source`. The array
   * ends with null, or is null. The file's own folder is always searched. */
  const char* const* file_options;
} ctxb_module;

#endif /* CTXBROKER_PLUGIN_MODULES_H */
