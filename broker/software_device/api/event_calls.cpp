// SPDX-License-Identifier: Apache-2.0
// cuEvent*.
#include <chrono>
#include <mutex>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/event.hpp"
#include "api/green.hpp"

using namespace ctxbroker::software;

namespace {

std::shared_ptr<Event> find_event(CUevent handle) {
  return Process::instance().events.find(handle);
}

CUresult destroy(CUevent event) {
  return working([&] { Process::instance().events.take(event); });
}

// Enqueues the command for a record of the event. If that fails, the record of an event that is
// shared with other processes counts as done, so that they do not wait for it.
void enqueue_record(const std::shared_ptr<Stream>& stream, Event& event,
                    const std::shared_ptr<Command>& point) {
  try {
    enqueue(stream, point);
  } catch (...) {
    if (point->work != nullptr) point->work();
    throw;
  }
  event.set_latest(point);
}

CUresult record(CUevent event, CUstream stream, unsigned flags) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    // CU_EVENT_RECORD_EXTERNAL means something only while a graph is captured.
    check_value((flags & ~unsigned(CU_EVENT_RECORD_EXTERNAL)) == 0);
    std::shared_ptr<Event> recorded = find_event(event);
    check_that(&recorded->context == &found->context.owner, CUDA_ERROR_INVALID_HANDLE);
    if (capture_record(found, recorded, flags != 0)) return;
    check_that(flags == 0, CUDA_ERROR_ILLEGAL_STATE);
    enqueue_record(found, *recorded, recorded->new_record());
  });
}

// An event that stands for all work that the context has now.
void record_context(Context& context, CUevent event) {
  std::shared_ptr<Event> recorded = find_event(event);
  check_that(&recorded->context == &context.owner, CUDA_ERROR_INVALID_HANDLE);
  refuse_waiting(context);
  Executor& executor = context.device.executor;
  std::shared_ptr<Command> point = recorded->new_record();
  point->after = context.kind == ContextKind::green ? executor.pending_of_group(&context)
                                                    : executor.pending_of_family(&context);
  // In a stream of its own: it must wait for the others and nobody for it.
  enqueue_record(
      std::make_shared<Stream>(context, Ordering::independent, CU_STREAM_NON_BLOCKING, 0),
      *recorded, point);
}

// Makes the work that is enqueued in the context from now on wait for the event.
void wait_in_context(Context& context, CUevent event) {
  std::shared_ptr<Event> found = find_event(event);
  refuse_captured(*found);
  refuse_waiting(context);
  std::shared_ptr<Command> recorded = found->latest();
  if (recorded != nullptr && !recorded->done) context.device.executor.hold_back(&context, recorded);
}

// cuCtxRecordEvent and cuCtxWaitEvent take no null for the current context.
[[maybe_unused]] Context& named_context(CUcontext handle) {
  check_that(handle != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  return living_context(handle);
}

CUresult elapsed(float* milliseconds, CUevent start, CUevent end) {
  return working([&] {
    check_value(milliseconds != nullptr);
    std::shared_ptr<Event> events[] = {find_event(start), find_event(end)};
    std::shared_ptr<Command> points[2];
    for (int i = 0; i < 2; ++i) {
      refuse_captured(*events[i]);
      points[i] = events[i]->latest();
      check_that(points[i] != nullptr && (events[i]->flags & CU_EVENT_DISABLE_TIMING) == 0,
                 CUDA_ERROR_INVALID_HANDLE);
    }
    check_that(&events[0]->context == &events[1]->context, CUDA_ERROR_INVALID_HANDLE);
    if (!points[0]->done || !points[1]->done) return CUDA_ERROR_NOT_READY;
    std::chrono::duration<float, std::milli> time = points[1]->finished_at - points[0]->finished_at;
    *milliseconds = time.count();
    return CUDA_SUCCESS;
  });
}

}  // namespace

CTXB_EXPORT CUresult cuEventCreate(CUevent* event, unsigned int flags) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& context = working_owner();
    constexpr unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    check_that((flags & ~(known | CU_EVENT_INTERPROCESS)) == 0, CUDA_ERROR_INVALID_VALUE);
    check_value(event != nullptr);
    std::shared_ptr<SharedRecord> shared;
    if ((flags & CU_EVENT_INTERPROCESS) != 0) {
      check_value((flags & CU_EVENT_DISABLE_TIMING) != 0);
      shared = std::make_shared<SharedRecord>(
          std::make_shared<SharedFile>(context.device.ordinal, SharedRecord::bytes));
    }
    const std::lock_guard lock(working_context().life_of_streams);
    *event = Process::instance().events.insert(
        std::make_shared<Event>(context, flags, std::move(shared)), [&] { context.check_alive(); });
  });
}

CTXB_EXPORT CUresult cuEventDestroy(CUevent event) {
  CTXB_COUNT_CALL();
  return destroy(event);
}
CTXB_EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  CTXB_COUNT_CALL();
  return destroy(event);
}

CTXB_EXPORT_PTSZ(cuEventRecord, (CUevent event, CUstream stream), record(event, stream, 0))
CTXB_EXPORT_PTSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags),
                 record(event, stream, flags))

CTXB_EXPORT CUresult cuEventQuery(CUevent event) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Event> found = find_event(event);
    refuse_captured(*found);
    refuse_unsafe();
    std::shared_ptr<Command> point = found->latest();
    return point == nullptr || point->done ? Process::fault() : CUDA_ERROR_NOT_READY;
  });
}

CTXB_EXPORT CUresult cuEventSynchronize(CUevent event) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Event> found = find_event(event);
    refuse_captured(*found);
    refuse_unsafe();
    std::shared_ptr<Command> point = found->latest();
    return point == nullptr ? CUDA_SUCCESS : wait_for(found->context, {point});
  });
}

CTXB_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  CTXB_COUNT_CALL();
  return elapsed(milliseconds, start, end);
}
CTXB_EXPORT CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  CTXB_COUNT_CALL();
  return elapsed(milliseconds, start, end);
}

CTXB_EXPORT CUresult cuGreenCtxRecordEvent(CUgreenCtx green, CUevent event) {
  CTXB_COUNT_CALL();
  return working([&] { record_context(living_green(green), event); });
}
CTXB_EXPORT CUresult cuGreenCtxWaitEvent(CUgreenCtx green, CUevent event) {
  CTXB_COUNT_CALL();
  return working([&] { wait_in_context(living_green(green), event); });
}
#if CUDA_VERSION >= 12050
CTXB_EXPORT CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  CTXB_COUNT_CALL();
  return working([&] { record_context(named_context(context), event); });
}
CTXB_EXPORT CUresult cuCtxWaitEvent(CUcontext context, CUevent event) {
  CTXB_COUNT_CALL();
  return working([&] { wait_in_context(named_context(context), event); });
}
#endif
