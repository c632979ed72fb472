// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Which plug-in it is, when the process crashes or does not go on. host.h includes this header.
 */
#ifndef CTXBROKER_HOST_DIAGNOSIS_H
#define CTXBROKER_HOST_DIAGNOSIS_H

#include <stdint.h>

#include "ctxbroker/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Switches on (1) or off (0) that a crash names the plug-in in one line on standard error.
 * crash_report.hpp says when to switch it on, and when to leave it off. Off at the start of the
 * process. It counts for all brokers. [any] */
CTXB_EXPORT void ctxb_name_crashes(uint32_t on);

/** A function of a plug-in that runs now, or a wait for a plug-in's work on the device. */
typedef struct ctxb_running_call {
  uint32_t size;        /**< Its size in the broker's header. */
  uint32_t reserved;    /**< 0. */
  const char* plugin;   /**< The plug-in's id. "": a function of the whole library ("init"). */
  const char* library;  /**< The library's file. */
  const char* function; /**< "process", "activate", ...; "work on the device" for a wait. */
  uint64_t thread;      /**< The system's number of the thread. */
  uint64_t elapsed_ns;  /**< How long it has run, to some milliseconds. */
} ctxb_running_call;

/** Takes one running call, with its texts, which are valid during the call. */
typedef void (*ctxb_running_function)(void* data, const ctxb_running_call* call);

/** Calls `each` for everything that runs now, on the calling thread: of each thread the innermost
 * call. It answers also while a plug-in's function never returns. [any] */
CTXB_EXPORT ctxb_status ctxb_running_calls(ctxb_running_function each, void* data);

#ifdef __cplusplus
}
#endif

#endif
