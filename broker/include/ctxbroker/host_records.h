// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * A queue of records, for hosts in languages whose code must not run on every thread: Python,
 * Java, C#. The broker makes a record on the thread where the event happens, and that thread may
 * hold driver and broker locks. If a callback waits there for the interpreter's lock, the process
 * can deadlock, because the thread that has that lock may be in a CUDA call that waits for the
 * others. The broker adds records to this queue without waiting for the host, and a host thread
 * takes them out. host.h says what holds for all functions.
 *
 *     ctxb_record_queue* queue = NULL;
 *     ctxb_broker_options options = {.size = sizeof options};
 *     ctxb_queued_record record = {.size = sizeof record};
 *     ctxb_record_queue_create(0, &queue);
 *     options.record = ctxb_record_queue_add;
 *     options.record_data = queue;
 *     ctxb_broker_open(&options, &broker);
 *     while (ctxb_record_queue_take(queue, 1000, &record) == CTXB_OK) puts(record.text);
 *     ctxb_broker_close(broker);
 *     ctxb_record_queue_destroy(queue);
 */
#ifndef CTXBROKER_HOST_RECORDS_H
#define CTXBROKER_HOST_RECORDS_H

#include "ctxbroker/host.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A queue of records. */
typedef struct ctxb_record_queue ctxb_record_queue;

/** Creates a queue.
 *
 * @param capacity  the most records that the queue holds. It drops and counts further ones. 0:
 *                  4,096.
 * @param queue     gets the queue, which ctxb_record_queue_destroy destroys. [any] */
CTXB_EXPORT ctxb_status ctxb_record_queue_create(uint32_t capacity, ctxb_record_queue** queue);

/** Adds a record. Put this function into ctxb_broker_options.record and the queue into record_data.
 * [any] */
CTXB_EXPORT void ctxb_record_queue_add(void* queue, uint32_t severity, uint32_t tenant,
                                       const char* tenant_name, const char* topic,
                                       const char* text);

/** A record that was taken out. */
typedef struct ctxb_queued_record {
  uint32_t size;           /**< sizeof(ctxb_queued_record). */
  uint32_t severity;       /**< CTXB_LOG_*. */
  uint32_t tenant;         /**< The number of the tenant that it concerns; 0 is the host. */
  uint32_t reserved;       /**< 0. */
  uint64_t time_ns;        /**< When it was made, in nanoseconds since 1970 (UTC). */
  uint64_t thread;         /**< The system's number of the thread that made it. */
  uint64_t lost_before;    /**< How many records were dropped between the previous one and this. */
  const char* tenant_name; /**< The texts are valid until the next record is taken out. */
  const char* topic;       /**< "driver", "lease", "strike", ... */
  const char* text;        /**< One line. */
} ctxb_queued_record;

/** Takes the oldest record out, and waits for one if the queue is empty. Take records on one thread
 * at a time, because the next record replaces the texts of the last one. Any number of threads may
 * wait without taking.
 *
 * @param timeout_ms  how long to wait, in ms. 0 returns at once. UINT32_MAX waits without a limit.
 * @param record      gets the record. Null: the call waits until there is one, and takes nothing.
 * @return CTXB_OK; CTXB_AGAIN if there is none when the time is over, or when
 *         ctxb_record_queue_wake ends the wait. [any] */
CTXB_EXPORT ctxb_status ctxb_record_queue_take(ctxb_record_queue* queue, uint32_t timeout_ms,
                                               ctxb_queued_record* record);

/** Wakes all threads that wait in ctxb_record_queue_take. If none waits, the next call that would
 * wait returns at once. Null does nothing. [any] */
CTXB_EXPORT void ctxb_record_queue_wake(ctxb_record_queue* queue);

/** Destroys the queue. First close the broker that adds to it. No thread may use the queue. Null is
 * an invalid argument. */
CTXB_EXPORT ctxb_status ctxb_record_queue_destroy(ctxb_record_queue* queue);

#ifdef __cplusplus
}
#endif

#endif
