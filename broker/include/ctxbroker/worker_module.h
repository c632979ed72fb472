/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file
 * The inside of a worker process: what a host with plug-ins in a format of its own writes for it.
 *
 * A worker is a process that a host starts through ctxbroker/worker.hpp. It serves messages whose
 * meaning is the host's own. The host writes one of these two:
 *
 * - a module: a shared library that exports `ctxb_worker_entry`. The program ctxbroker-worker loads
 *   it;
 * - a program of its own, which calls ctxb_worker_serve and returns what that returns.
 *
 * Both link ctxbroker and may open a Broker in `start`. A worker has a minimal environment, no
 * descriptor but its standard ones and 3, and ends when its host ends. What it prints goes to the
 * host's records.
 *
 * THREADS. `start`, `buffer_taken_back` and `stop` run on the thread that called
 * ctxb_worker_serve, and so does everything else unless WorkerOptions::threads is more than 1. Then
 * several threads call `handle` and `buffer_lent` at once.
 *
 * RULES. `size` comes first: sizeof the struct in the header of the side that filled it. What is
 * passed to a function is valid during the call. No longjmp leaves a function. If an exception
 * leaves one, the call fails with its text.
 *
 * This header compiles as C11 and C++11.
 */
#ifndef CTXBROKER_WORKER_MODULE_H
#define CTXBROKER_WORKER_MODULE_H

#include <stdint.h>

#include "ctxbroker/plugin.h" /* ctxb_status, CTXB_EXPORT */

#ifdef __cplusplus
extern "C" {
#endif

#define CTXB_WORKER_ABI 1

/** One message from the host. */
typedef struct ctxb_worker_message {
  uint32_t size;    /**< sizeof(ctxb_worker_message). */
  uint32_t type;    /**< The host's own number for this kind of message. */
  uint64_t subject; /**< Whom it concerns, in the host's own numbers. */
  const void* data; /**< Aligned to 64 bytes. */
  uint64_t bytes;
} ctxb_worker_message;

/** Where the answer goes. */
typedef struct ctxb_worker_reply {
  uint32_t size;     /**< sizeof(ctxb_worker_reply). */
  uint32_t reserved; /**< 0. */
  void* data;        /**< Write the answer here. Aligned to 64 bytes. */
  uint64_t capacity; /**< How many bytes the host takes at most. */
  uint64_t bytes;    /**< Set it to how many were written. It is 0 at first. */
} ctxb_worker_reply;

/** What the worker's library does for a module. All functions may be called on any thread. */
typedef struct ctxb_worker_host {
  uint32_t size;     /**< Its size in the library's header. */
  uint32_t reserved; /**< 0. */
  /** Finds a block of shared memory that the host has lent. It stays where it is until
   * `buffer_taken_back`.
   *
   * @return CTXB_ERROR_NOT_FOUND for a handle that is not, or no more, in force. */
  ctxb_status (*buffer)(uint64_t handle, void** memory, uint64_t* bytes);
  /** Sends the host a notification, which gets no answer. It never waits.
   *
   * @return CTXB_ERROR_INVALID_ARGUMENT when it is longer than the host's message_bytes;
   *         CTXB_ERROR_UNAVAILABLE when the host has not read earlier ones; it is not sent then. */
  ctxb_status (*notify)(uint32_t type, const void* data, uint64_t bytes);
  /** Says why the function that runs on this thread is about to return an error, in one sentence.
   */
  void (*fail)(const char* text);
  /** Takes a descriptor that the host has passed (Worker::pass_descriptor). It waits for it, at
   * most a second.
   *
   * @return the descriptor, which the caller closes; -1 when there is none of this number. */
  int (*take_descriptor)(uint64_t number);
  /** Passes a copy of a descriptor of memory to the host (Worker::take_descriptor). It never waits.
   *
   * @return as `notify`; CTXB_ERROR_INVALID_ARGUMENT also for a descriptor of anything else. */
  ctxb_status (*pass_descriptor)(uint64_t number, int descriptor);
} ctxb_worker_host;

/** What a module is. Functions may be null, except `handle`. */
typedef struct ctxb_worker_module {
  uint32_t size; /**< sizeof(ctxb_worker_module). */
  uint32_t abi;  /**< CTXB_WORKER_ABI. */
  /** Called once, before the first message. `host` lives as long as the process. An error ends the
   * worker, and the host gets the text. */
  ctxb_status (*start)(const ctxb_worker_host* host);
  /** Answers one message. An error is the host's plugin_failed. CTXB_ERROR_CONTEXT_LOST says that
   * CUDA has ended in this process: the host then ends the worker, and its next call starts a new
   * one. */
  ctxb_status (*handle)(const ctxb_worker_message* message, ctxb_worker_reply* reply);
  /** The host has lent a block of shared memory. Register it here, so that copies can be
   * asynchronous (cuMemHostRegister). An error is told to the host, and the block is not lent. */
  ctxb_status (*buffer_lent)(uint64_t handle, void* memory, uint64_t bytes);
  /** The host takes the block back. Its memory is unmapped after this call. */
  void (*buffer_taken_back)(uint64_t handle, void* memory);
  /** Called once, after the last message, when the host closes the worker in peace. The process
   * exits afterwards. A crash or a hang in either is told as one in `handle` is. */
  void (*stop)(void);
} ctxb_worker_module;

/** What a module exports. */
extern CTXB_EXPORT const ctxb_worker_module ctxb_worker_entry;

/** Serves the host that has started this process, until it closes the worker.
 *
 * @param module  null: the module that the host named, as ctxbroker-worker does.
 * @return what main should return: 0 after a close in peace, 2 when no host has started this
 *         process, another number when the host cannot be served. Standard error says why. */
CTXB_EXPORT int ctxb_worker_serve(const ctxb_worker_module* module);

#ifdef __cplusplus
}
#endif

#endif
