// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Finding plug-ins from C, without loading one into the host. scan.hpp says what a scan does;
 * host.h says what holds for all functions.
 *
 *     ctxb_scan* scan = NULL;
 *     ctxb_found_plugin blur = {.size = sizeof blur};
 *     ctxb_scan_run(NULL, &scan);
 *     if (ctxb_scan_find(scan, "blur", &blur) == CTXB_OK) {
 *       ctxb_plugin_library_load(broker, blur.library_path, &library);
 *     }
 *     ctxb_scan_end(scan);
 */
#ifndef CTXBROKER_HOST_SCAN_H
#define CTXBROKER_HOST_SCAN_H

#include "ctxbroker/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a scan found. */
typedef struct ctxb_scan ctxb_scan;

/** Tells how far a scan is, on the scanning thread.
 *
 * @param data     ctxb_scan_options.progress_data.
 * @param done     libraries whose state is known.
 * @param total    all libraries that were found.
 * @param library  the one that is loaded now, or was. Valid during the call.
 * @param begins   1: it is loaded now.
 * @return 0 ends the scan; 1 goes on. */
typedef uint32_t (*ctxb_scan_progress_function)(void* data, uint64_t done, uint64_t total,
                                                const char* library, uint32_t begins);

/** What to scan, and how. All members may be 0. Lists of texts end with null, and may be null. */
typedef struct ctxb_scan_options {
  uint32_t size;             /**< sizeof(ctxb_scan_options). */
  uint32_t deadline_ms;      /**< How long loading one library may take, in ms. 0: 10000. */
  const char* const* first;  /**< Folders to search first. */
  const char* const* beside; /**< Folders to search behind those of CTXBROKER_PLUGIN_PATH. */
  const char* const* allow;  /**< Shell patterns: which libraries to use. None: all. */
  const char* const* deny;   /**< Shell patterns: which libraries not to use. */
  uint32_t at_once; /**< Libraries to load at once, at most 64. 0: as many as processors. */
  uint32_t without_environment;         /**< 1: not the folders of CTXBROKER_PLUGIN_PATH. */
  uint32_t without_standard;            /**< 1: not the standard folders. */
  uint32_t safe;                        /**< 1: load nothing; use manifests and what is known. */
  uint32_t rescan;                      /**< 1: look at all libraries anew. */
  uint32_t without_cache;               /**< 1: neither read nor keep what scans find. */
  const char* cache_file;               /**< Null: the usual one. */
  const char* choices_file;             /**< Null: the usual one. */
  const char* program;                  /**< The scanning program. Null: ctxb-scan of the broker. */
  ctxb_scan_progress_function progress; /**< May be null. */
  void* progress_data;                  /**< Passed to progress. */
} ctxb_scan_options;

/** Looks for plug-in libraries. What goes wrong with a library is its state.
 *
 * @param options  may be null.
 * @param scan     gets the result, which ctxb_scan_end ends. [any] */
CTXB_EXPORT ctxb_status ctxb_scan_run(const ctxb_scan_options* options, ctxb_scan** scan);

/** Ends the result, and all texts that came from it. */
CTXB_EXPORT ctxb_status ctxb_scan_end(ctxb_scan* scan);

#define CTXB_LIBRARY_ENABLED 0        /**< It can be used. */
#define CTXB_LIBRARY_DISABLED 1       /**< By the user, or by the host's lists. */
#define CTXB_LIBRARY_COULD_NOT_LOAD 2 /**< Or it is no plug-in. */
#define CTXB_LIBRARY_CRASHED 3        /**< It ended the process that loaded it. */
#define CTXB_LIBRARY_HUNG 4           /**< Loading it did not end in time. */
#define CTXB_LIBRARY_MISSING 5        /**< An earlier scan found it, and it is gone. */

/** One library file. The texts belong to the scan. */
typedef struct ctxb_scanned_library {
  uint32_t size;         /**< sizeof(ctxb_scanned_library). */
  uint32_t state;        /**< CTXB_LIBRARY_*. */
  const char* path;      /**< The file. */
  const char* reason;    /**< Why it is not enabled; "" if it is. */
  uint32_t strikes;      /**< How often this file has crashed or hung. */
  uint32_t plugin_count; /**< Plug-ins that are known of it. */
} ctxb_scanned_library;

/** Returns how many libraries there are; 0 for null. [any] */
CTXB_EXPORT uint32_t ctxb_scan_library_count(const ctxb_scan* scan);
/** Describes library number `library`. [any]
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT when there is no such library. */
CTXB_EXPORT ctxb_status ctxb_scan_library(const ctxb_scan* scan, uint32_t library,
                                          ctxb_scanned_library* info);
/** Describes a plug-in of a library. Its ports and parameters are in ctxb_scan_write. [any]
 *
 * @return CTXB_ERROR_INVALID_ARGUMENT when there is no such plug-in. */
CTXB_EXPORT ctxb_status ctxb_scan_plugin(const ctxb_scan* scan, uint32_t library, uint32_t plugin,
                                         ctxb_plugin_info* info);

/** Where a plug-in is. The text belongs to the scan. */
typedef struct ctxb_found_plugin {
  uint32_t size;            /**< sizeof(ctxb_found_plugin). */
  uint32_t library;         /**< Its library's number. */
  uint32_t plugin;          /**< Its number in the library. */
  uint32_t reserved;        /**< 0. */
  const char* library_path; /**< For ctxb_plugin_library_load. */
} ctxb_found_plugin;

/** Finds a plug-in that can be used by its id, or by a short name that only one has. [any]
 *
 * @return CTXB_ERROR_UNAVAILABLE when there is none. */
CTXB_EXPORT ctxb_status ctxb_scan_find(const ctxb_scan* scan, const char* name,
                                       ctxb_found_plugin* found);

/** Writes the whole result as JSON with the schema "ctxbroker.scan/1", in one piece. [any] */
CTXB_EXPORT ctxb_status ctxb_scan_write(const ctxb_scan* scan, ctxb_text_function write,
                                        void* data);

/** Enables (1) or disables (0) a library for this user, from the next scan on.
 *
 * @param options  choices_file is taken from here. May be null. [any] */
CTXB_EXPORT ctxb_status ctxb_scan_set_enabled(const char* library, uint32_t enabled,
                                              const ctxb_scan_options* options);

/** The main function of a scanning program, for hosts that do not ship ctxb-scan. Call it before
 * the program starts a thread.
 *
 * @return the program's exit status. */
CTXB_EXPORT int ctxb_scan_program(int argc, const char* const* argv);

#ifdef __cplusplus
}
#endif

#endif /* CTXBROKER_HOST_SCAN_H */
