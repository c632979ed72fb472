// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * A queue of records, for hosts whose language cannot run code on any thread: Python, Java, C#. A
 * record is made on any thread, and the thread may hold locks of the driver and of the broker. Code
 * that waits there for a language's own lock can wait for ever, because the lock's owner may call
 * CUDA and wait for the other ones. This queue waits for nobody. A thread of the host takes the
 * records out. host.h says what holds for all functions.
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
 * @param capacity  how many records wait at most. Further ones are lost, and counted. 0: 4,096.
 * @param queue     gets the queue, which ctxb_record_queue_destroy ends. [any] */
CTXB_EXPORT ctxb_status ctxb_record_queue_create(uint32_t capacity, ctxb_record_queue** queue);

/** Adds a record. It is for ctxb_broker_options.record, with the queue in record_data. [any] */
CTXB_EXPORT void ctxb_record_queue_add(void* queue, uint32_t severity, uint32_t tenant,
                                       const char* tenant_name, const char* topic,
                                       const char* text);

/** A record that was taken out. */
typedef struct ctxb_queued_record {
  uint32_t size;           /**< sizeof(ctxb_queued_record). */
  uint32_t severity;       /**< CTXB_LOG_*. */
  uint32_t tenant;         /**< Whom it concerns: the number of a tenant; 0 is the host. */
  uint32_t reserved;       /**< 0. */
  uint64_t time_ns;        /**< When it was made, in nanoseconds since 1970 (UTC). */
  uint64_t thread;         /**< The system's number of the thread that made it. */
  uint64_t lost_before;    /**< Records that were lost between the one before it and this one. */
  const char* tenant_name; /**< The texts are valid until the next record is taken out. */
  const char* topic;       /**< "driver", "lease", "strike", ... */
  const char* text;        /**< One line. */
} ctxb_queued_record;

/** Takes the oldest record out, and waits for one if the queue is empty. One thread at a time takes
 * records, because the texts are those of one record. Any number of threads may wait without
 * taking.
 *
 * @param timeout_ms  how long to wait, in ms. 0 returns at once. UINT32_MAX: as long as it takes.
 * @param record      gets the record. Null: the call waits until there is one, and takes nothing.
 * @return CTXB_OK; CTXB_AGAIN when there is none, or ctxb_record_queue_wake ended the waiting.
 * [any]
 */
CTXB_EXPORT ctxb_status ctxb_record_queue_take(ctxb_record_queue* queue, uint32_t timeout_ms,
                                               ctxb_queued_record* record);

/** Ends the waiting of the threads that wait now. If none does, the next call that would wait does
 * not. Null does nothing. [any] */
CTXB_EXPORT void ctxb_record_queue_wake(ctxb_record_queue* queue);

/** Destroys the queue. The broker that adds to it must be closed, and no thread may use the queue.
 */
CTXB_EXPORT ctxb_status ctxb_record_queue_destroy(ctxb_record_queue* queue);

#ifdef __cplusplus
}
#endif

#endif
