// SPDX-License-Identifier: Apache-2.0
// cuStream*. Each function that takes a stream exists twice: as _ptsz the null stream is the
// calling thread's own.
#include <algorithm>
#include <mutex>

#include "api/capture.hpp"
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/event.hpp"
#include "api/green.hpp"

using namespace ctxbroker::software;

namespace {

CUstream create_in(Context& context, unsigned flags, int priority) {
  if (context.kind == ContextKind::green) flags = CU_STREAM_NON_BLOCKING;
  const bool waits = flags != CU_STREAM_NON_BLOCKING;
  auto made = std::make_shared<Stream>(
      context, waits ? Ordering::blocking : Ordering::independent, flags,
      std::clamp(priority, device_limits::greatest_priority, device_limits::least_priority));
  const std::lock_guard lock(context.life_of_streams);
  return Process::instance().streams.insert(made, [&] { context.check_alive(); });
}

CUresult create(CUstream* stream, unsigned flags, int priority) {
  return initialised([&] {
    Context& context = working_context();
    check_value(stream != nullptr && (flags & ~unsigned(CU_STREAM_NON_BLOCKING)) == 0);
    *stream = create_in(context, flags, priority);
  });
}

// Destroys the stream. The work that is enqueued in it still executes.
CUresult destroy(CUstream stream) {
  return working([&] {
    auto& streams = Process::instance().streams;
    Context& context = streams.find(stream)->context;
    std::unique_lock lock(context.life_of_streams);
    context.check_alive();
    const auto taken = streams.take(stream);
    lock.unlock();
    abandon_captures(*taken);
  });
}

// Calls `body` with the stream of a handle.
template <class Body>
CUresult with(CUstream stream, Body body) {
  return initialised([&] {
    std::shared_ptr<Stream> found = find_stream(stream);
    check_that(Process::fault() == CUDA_SUCCESS, Process::fault());
    return body(*found, found);
  });
}

template <class Value, class Read>
CUresult ask(CUstream stream, Value* value, Read read) {
  return with(stream, [&](Stream& found, auto&) {
    check_value(value != nullptr);
    *value = read(found);
    return CUDA_SUCCESS;
  });
}

// Refuses to wait for a stream whose work is being captured, because captured work never executes.
void check_wait(const Stream& stream) {
  check_use(stream);
  refuse_waiting(stream);
}

CUresult query(CUstream stream) {
  return with(stream, [](Stream& found, auto&) {
    check_wait(found);
    bool idle = found.context.device.executor.pending(found).empty();
    return idle ? Process::fault() : CUDA_ERROR_NOT_READY;
  });
}

CUresult synchronise(CUstream stream) {
  return with(stream, [](Stream& found, auto&) {
    check_wait(found);
    return wait_for(found.context, found.context.device.executor.pending(found));
  });
}

CUresult wait_event(CUstream stream, CUevent event, unsigned flags) {
  return with(stream, [&](Stream&, auto& found) {
    check_value((flags & ~unsigned(CU_EVENT_WAIT_EXTERNAL)) == 0);
    std::shared_ptr<Event> waited = Process::instance().events.find(event);
    check_use(*found);
    if (capture_wait(found, waited, flags != 0)) return CUDA_SUCCESS;
    std::shared_ptr<Command> recorded = waited->latest();
    if (recorded == nullptr || recorded->done) return CUDA_SUCCESS;
    auto command = std::make_shared<Command>();
    command->after.push_back(std::move(recorded));
    enqueue(found, command);
    return CUDA_SUCCESS;
  });
}

CUresult add_callback(CUstream stream, CUstreamCallback callback, void* data, unsigned flags) {
  return with(stream, [&](Stream&, auto& found) {
    check_value(callback != nullptr && flags == 0);
    refuse_in_capture(*found, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    auto command = std::make_shared<Command>();
    command->kind = Command::Kind::host_function;
    command->even_after_fault = true;
    command->work = [=] {
      callback(stream, Process::fault(), data);
      return CUDA_SUCCESS;
    };
    enqueue(found, command);
    return CUDA_SUCCESS;
  });
}

CUresult launch_host_function(CUstream stream, CUhostFn function, void* data) {
  return with(stream, [&](Stream&, auto& found) {
    check_value(function != nullptr);
    auto command = std::make_shared<Command>();
    command->kind = Command::Kind::host_function;
    command->node_type = CU_GRAPH_NODE_TYPE_HOST;
    command->work = [=] {
      function(data);
      return CUDA_SUCCESS;
    };
    enqueue(found, command);
    return CUDA_SUCCESS;
  });
}

CUresult get_priority(CUstream stream, int* priority) {
  return ask(stream, priority, [](const Stream& found) { return found.priority; });
}
CUresult get_flags(CUstream stream, unsigned* flags) {
  return ask(stream, flags, [](const Stream& found) { return found.flags; });
}
CUresult get_id(CUstream stream, unsigned long long* id) {
  return ask(stream, id, [](const Stream& found) { return found.id; });
}
CUresult get_context(CUstream stream, CUcontext* context) {
  return ask(stream, context, [](const Stream& found) { return found.context.handle; });
}
// Null for a stream of no green context.
CUgreenCtx green_of(const Stream& stream) {
  bool green = stream.context.kind == ContextKind::green;
  return green ? reinterpret_cast<CUgreenCtx>(stream.context.handle) : nullptr;
}
[[maybe_unused]] CUresult get_contexts(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  return with(stream, [&](Stream& found, auto&) {
    check_value(context != nullptr && green != nullptr);
    *context = found.context.owner.handle;
    *green = green_of(found);
    return CUDA_SUCCESS;
  });
}
CUresult get_device(CUstream stream, CUdevice* device) {
  return ask(stream, device, [](const Stream& found) { return found.context.device.ordinal; });
}

}  // namespace

CTXB_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  CTXB_COUNT_CALL();
  return create(stream, flags, 0);
}
CTXB_EXPORT CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags,
                                                int priority) {
  CTXB_COUNT_CALL();
  return create(stream, flags, priority);
}
CTXB_EXPORT CUresult cuStreamDestroy(CUstream stream) {
  CTXB_COUNT_CALL();
  return destroy(stream);
}
CTXB_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  CTXB_COUNT_CALL();
  return destroy(stream);
}

CTXB_EXPORT_PTSZ(cuStreamQuery, (CUstream stream), query(stream))

CTXB_EXPORT_PTSZ(cuStreamSynchronize, (CUstream stream), synchronise(stream))

CTXB_EXPORT_PTSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
                 wait_event(stream, event, flags))

CTXB_EXPORT_PTSZ(cuStreamAddCallback,
                 (CUstream stream, CUstreamCallback callback, void* data, unsigned int flags),
                 add_callback(stream, callback, data, flags))

CTXB_EXPORT_PTSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* data),
                 launch_host_function(stream, function, data))

CTXB_EXPORT_PTSZ(cuStreamGetPriority, (CUstream stream, int* priority),
                 get_priority(stream, priority))
CTXB_EXPORT_PTSZ(cuStreamGetFlags, (CUstream stream, unsigned int* flags), get_flags(stream, flags))
CTXB_EXPORT_PTSZ(cuStreamGetId, (CUstream stream, unsigned long long* id), get_id(stream, id))
CTXB_EXPORT_PTSZ(cuStreamGetCtx, (CUstream stream, CUcontext* context),
                 get_context(stream, context))
CTXB_EXPORT CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* green) {
  CTXB_COUNT_CALL();
  return ask(stream, green, green_of);
}
#if CUDA_VERSION >= 12050
CTXB_EXPORT_PTSZ(cuStreamGetCtx_v2, (CUstream stream, CUcontext* context, CUgreenCtx* green),
                 get_contexts(stream, context, green))
CTXB_EXPORT CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx green, unsigned int flags,
                                            int priority) {
  CTXB_COUNT_CALL();
  return working([&] {
    Context& context = living_green(green);
    check_value(stream != nullptr && flags == CU_STREAM_NON_BLOCKING);
    *stream = create_in(context, flags, priority);
  });
}
#endif
CTXB_EXPORT_PTSZ(cuStreamGetDevice, (CUstream stream, CUdevice* device), get_device(stream, device))
