#include "context/guard.hpp"

#include <cstdio>
#include <string>

#include "driver/driver_error.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {
namespace {

// Per thread, because a context stack is. A plain pointer without a destructor: guards are still
// entered when static objects end, after the main thread's thread_local objects have ended.
//
// "initial-exec" makes it one load instead of a call. All that the library keeps per thread must
// then find room beside what the process was started with, also when the library is opened late:
// keep it to a few dozen bytes.
[[gnu::tls_model("initial-exec")]] constinit thread_local Frame* innermost = nullptr;

// The same for what is known of this thread while the gate watches: how often something may have
// changed what is current, and the count at which nothing was, with the mode of capture that every
// thread starts with.
struct Known {
  std::uint64_t changes = 1;
  std::uint64_t empty_at = 0;
};
[[gnu::tls_model("initial-exec")]] constinit thread_local Known known;

// Nothing that was seen has touched the thread since the frame was entered.
bool is_untouched(const Frame& frame) noexcept {
  return frame.seen == known.changes && frame.target.driver->current_is_watched;
}

void link(Frame& frame) noexcept {
  frame.outer = innermost;
  innermost = &frame;
}

// The innermost frame that decided what is current.
const Frame* place(const Frame* frame) noexcept {
  while (frame != nullptr && frame->way != Frame::Way::nested && frame->way != Frame::Way::full) {
    frame = frame->outer;
  }
  return frame;
}

bool is_current(const DriverTable& driver, CUcontext context) noexcept {
  CUcontext current = nullptr;
  return driver.ctx_get_current(&current) == CUDA_SUCCESS && current == context;
}

// The frame that has made the target current already, and it is still; null when there is none.
const Frame* inside(const GuardTarget& target) noexcept {
  const Frame* frame = place(innermost);
  const bool same = frame != nullptr && frame->target.driver == target.driver &&
                    frame->target.generation == target.generation;
  if (!same) return nullptr;
  return is_untouched(*frame) || is_current(*target.driver, frame->context) ? frame : nullptr;
}

// Nothing can be done about it and nobody may be stopped by it; but it is said.
void report_failed_restore(const Frame& frame, CUresult status) noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED) return;
  if (is_process_fault(status)) return;  // that is said once, and there is no work to be disturbed
  if (frame.call.tenant == nullptr || frame.call.tenant->recorder == nullptr) return;
  const TenantIdentity& tenant = *frame.call.tenant;
  try {
    tenant.recorder->record(Severity::error, tenant.id, tenant.name, "guard",
                            std::string(frame.call.function) +
                                ": the thread's context stack could not be restored: " +
                                status_text(*frame.target.driver, status));
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
  }
}

// What the plug-in left, as text for its strike; null when it left what it found.
const char* damage(CUcontext context, const Emptied& left, char* text, std::size_t bytes) noexcept {
  const std::size_t expected = context != nullptr ? 1 : 0;
  const bool bottom_kept = expected == 0 || (left.count >= 1 && left.bottom == context);
  if (bottom_kept && left.count == expected) return nullptr;
  if (bottom_kept) {
    std::snprintf(text, bytes, "left %zu context(s) pushed; they were removed",
                  left.count - expected);
  } else if (left.count == 0) {
    std::snprintf(text, bytes, "popped a context that it did not push; it was put back");
  } else {
    std::snprintf(text, bytes,
                  "left another context current (%p instead of %p); the right one was put back",
                  static_cast<void*>(left.top), static_cast<void*>(context));
  }
  return text;
}

// Empties the thread's stack down to the floor, strikes when something else than the target was
// there. Returns the driver's status.
CUresult clear_stack(const Frame& frame) noexcept {
  const Emptied left = empty_stack(*frame.target.driver);
  // A function that starts with no context may have called the runtime library, which makes one
  // current and leaves it; the gate made that the tenant's own.
  const bool captured = frame.context == nullptr && left.count == 1 && frame.captured.has(left.top);
  if (left.status == CUDA_SUCCESS && frame.call.tenant != nullptr && !captured) {
    char text[128];
    const char* what = damage(frame.context, left, text, sizeof text);
    if (what != nullptr) {
      strike(*frame.call.tenant, frame.call.strikes, frame.call.function, what);
    }
  }
  return left.status;
}

void leave_nested(const Frame& frame) noexcept {
  if (is_untouched(frame) || is_current(*frame.target.driver, frame.context)) return;
  CUresult status = clear_stack(frame);
  if (Frame* full = innermost_place()) full->pushed = 0;
  if (frame.context != nullptr) {
    const CUresult pushed = frame.target.driver->ctx_push(frame.context);
    if (status == CUDA_SUCCESS) status = pushed;
  }
  report_failed_restore(frame, status);
}

// A plug-in starts with the mode that every thread starts with, and leaves the thread's own alone.
CUresult enter_capture_mode(Frame& frame) noexcept {
  frame.capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return frame.target.driver->exchange_capture_mode(&frame.capture_mode);
}

void leave_capture_mode(const Frame& frame) noexcept {
  CUstreamCaptureMode mode = frame.capture_mode;
  CUresult status = frame.target.driver->exchange_capture_mode(&mode);
  if (status != CUDA_SUCCESS) {  // as with the context stack: nothing else puts it right
    mode = frame.capture_mode;
    status = frame.target.driver->exchange_capture_mode(&mode);
  }
  if (status != CUDA_SUCCESS) {
    report_failed_restore(frame, status);
  } else if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL) {
    strike(*frame.call.tenant, frame.call.strikes, frame.call.function,
           "left another stream-capture mode behind; the thread's own was put back");
  }
}

// Takes the thread's contexts away and makes the target current. On an error nothing has changed.
CUresult enter_full(Frame& frame) noexcept {
  const GuardTarget& target = frame.target;
  CUresult status = CUDA_SUCCESS;
  frame.seen = known.changes;
  frame.quick =
      innermost == nullptr && known.empty_at == known.changes && target.driver->current_is_watched;
  const bool was_empty = frame.quick || is_current(*target.driver, nullptr);
  if (!was_empty) status = take_stack(*target.driver, frame.taken);
  if (status == CUDA_SUCCESS && target.occupancy != nullptr) {
    status = target.occupancy->enter(&frame.context, &frame.seat);
    if (status != CUDA_SUCCESS) frame.target.occupancy = nullptr;  // nothing to leave
  }
  if (status == CUDA_SUCCESS && frame.context != nullptr) {
    status = target.driver->ctx_push(frame.context);
    if (status == CUDA_SUCCESS && frame.call.tenant != nullptr && !frame.quick) {
      status = enter_capture_mode(frame);
      // What was seen while nobody watched may have changed unseen.
      const bool as_at_first = was_empty && innermost == nullptr &&
                               target.driver->current_is_watched &&
                               frame.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
      if (status == CUDA_SUCCESS && as_at_first) known.empty_at = known.changes;
      CUcontext popped = nullptr;
      if (status != CUDA_SUCCESS) target.driver->ctx_pop(&popped);
    }
  }
  if (status == CUDA_SUCCESS) {
    // Asked for now, for a tenant may end under a thread that is inside. One that wants to know is
    // the gate's, and those never end.
    if (!frame.quick && frame.call.tenant != nullptr) {
      frame.tells_end = frame.call.tenant->guard_ended.load(std::memory_order_relaxed) != nullptr;
    }
    return status;
  }
  if (frame.target.occupancy != nullptr) target.occupancy->leave(frame.seat);
  give_back_stack(*target.driver, frame.taken);
  return status;
}

// Before what is current changes: captures are ended where they were begun.
void end_stream_captures(Frame& frame) noexcept {
  const DriverTable& driver = *frame.target.driver;
  while (CUstream stream = frame.stream_captures.take()) {
    CUgraph graph = nullptr;
    if (driver.stream_end_capture == nullptr || driver.graph_destroy == nullptr) continue;
    if (driver.stream_end_capture(stream, &graph) == CUDA_SUCCESS && graph != nullptr) {
      driver.graph_destroy(graph);
    }
    if (frame.call.tenant != nullptr) {
      strike(*frame.call.tenant, frame.call.strikes, frame.call.function,
             "left the capture of a stream open; it was ended");
    }
  }
}

// True when just the frame's own context was there, and is gone now: what nearly always happens.
bool pop_own(const Frame& frame) noexcept {
  CUcontext left = nullptr;
  const DriverTable& driver = *frame.target.driver;
  if (frame.context == nullptr || driver.ctx_pop(&left) != CUDA_SUCCESS) return false;
  if (left == frame.context && is_current(driver, nullptr)) return true;
  driver.ctx_push(left);  // all is looked at, from the top
  return false;
}

// One pop, where nothing can have happened. False: nothing was done.
bool leave_quickly(Frame& frame) noexcept {
  if (!frame.quick || !is_untouched(frame) || frame.context == nullptr ||
      !frame.stream_captures.empty() || !frame.captured.empty()) {
    return false;
  }
  CUcontext left = nullptr;
  const DriverTable& driver = *frame.target.driver;
  if (driver.ctx_pop(&left) != CUDA_SUCCESS) return false;
  if (left != frame.context) {  // by ways that the gate does not see: all is looked at
    current_may_have_changed();
    driver.ctx_push(left);
    return false;
  }
  if (frame.target.occupancy != nullptr) frame.target.occupancy->leave(frame.seat);
  return true;
}

void leave_full(Frame& frame) noexcept {
  if (leave_quickly(frame)) return;
  if (!frame.stream_captures.empty()) end_stream_captures(frame);
  if (frame.context != nullptr && frame.call.tenant != nullptr) leave_capture_mode(frame);
  const CUresult cleared = pop_own(frame) ? CUDA_SUCCESS : clear_stack(frame);
  const CUresult restored = give_back_stack(*frame.target.driver, frame.taken);
  if (frame.target.occupancy != nullptr) frame.target.occupancy->leave(frame.seat);
  if (!frame.captured.empty()) frame.captured.leave_all();
  report_failed_restore(frame, cleared != CUDA_SUCCESS ? cleared : restored);
  if (!frame.tells_end) return;
  if (auto* const ended = frame.call.tenant->guard_ended.load(std::memory_order_relaxed)) {
    ended(frame.call.tenant->gated.load(std::memory_order_acquire));
  }
}

// For the timeline: the thread was in a context from enter to here.
void record_guard(const Frame& frame) noexcept {
  Span span;
  span.begin = frame.observed_from;
  span.end = timeline_now();
  span.category = SpanCategory::guard;
  span.verb = "guard";
  span.values[0] = frame.target.generation;
  if (frame.call.tenant != nullptr) span.tenant = frame.call.tenant->id.value;
  set_subject(span, frame.call.function);
  record_span(span);
}

// What is not nested stands in functions of its own, so that a nested guard saves no registers for
// it: nested ones are what a guard costs most often.
[[gnu::noinline]] CUresult enter_outermost(Frame& frame) noexcept {
  if (timeline_observed()) frame.observed_from = timeline_now();
  const CUresult status = enter_full(frame);
  frame.way = status == CUDA_SUCCESS ? Frame::Way::full : Frame::Way::nothing;
  link(frame);
  return status;
}

[[gnu::noinline]] void leave_and_look(Frame& frame) noexcept {
  if (frame.way == Frame::Way::nested) {
    leave_nested(frame);
  } else {
    leave_full(frame);
    if (frame.observed_from != 0) record_guard(frame);
  }
  innermost = frame.outer;
}

// The broker's own code is balanced; only a plug-in's function is looked at.
bool is_looked_at(const Frame& frame) noexcept {
  return frame.way == Frame::Way::full ||
         (frame.way == Frame::Way::nested && frame.call.tenant != nullptr &&
          frame.call.look_when_nested);
}

}  // namespace

CUresult enter(Frame& frame) noexcept {
  frame.way = Frame::Way::nothing;
  frame.context = frame.target.context;
  if (frame.target.driver != nullptr) {
    const Frame* outer = inside(frame.target);
    if (outer == nullptr) return enter_outermost(frame);
    frame.way = Frame::Way::nested;
    frame.context = outer->context;
    frame.seen = known.changes;
  }
  link(frame);
  return CUDA_SUCCESS;
}

void current_may_have_changed() noexcept {
  ++known.changes;
}

void enter_host(Frame& frame) noexcept {
  frame.way = Frame::Way::host;
  link(frame);
}

void leave(Frame& frame) noexcept {
  if (is_looked_at(frame)) return leave_and_look(frame);
  innermost = frame.outer;
}

Frame* innermost_place() noexcept {
  Frame* frame = innermost;
  while (frame != nullptr && frame->way == Frame::Way::nested) frame = frame->outer;
  return frame != nullptr && frame->way == Frame::Way::full ? frame : nullptr;
}

void stream_capture_begun(CUstream stream) noexcept {
  if (Frame* frame = innermost_place()) frame->stream_captures.begun(stream);
}

void stream_capture_ended(CUstream stream) noexcept {
  for (Frame* frame = innermost; frame != nullptr; frame = frame->outer) {
    if (frame->stream_captures.ended(stream)) return;
  }
}

FrameOwner frame_owner() noexcept {
  for (const Frame* frame = innermost; frame != nullptr; frame = frame->outer) {
    if (frame->way == Frame::Way::host) return {true, nullptr};
    if (frame->call.tenant != nullptr) {
      return {true, frame->call.tenant->id == host_tenant ? nullptr : frame->call.tenant};
    }
  }
  return {};
}

TenantId running_tenant() noexcept {
  const Frame* frame = innermost;
  if (frame == nullptr || frame->call.tenant == nullptr) return host_tenant;
  return frame->call.tenant->id;
}

}  // namespace ctxbroker::detail
