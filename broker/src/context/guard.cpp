#include "context/guard.hpp"

#include <cstdio>
#include <new>
#include <string>
#include <utility>

#include "context/quick_guard.hpp"
#include "ctxbroker/tenant.hpp"
#include "driver/driver_error.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {
namespace {

void link(Frame& frame) noexcept {
  frame.outer = innermost_frame();
  thread_notes.innermost.set(&frame);
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
  const Frame* frame = place(innermost_frame());
  const bool same = frame != nullptr && frame->target.driver == target.driver &&
                    frame->target.generation == target.generation;
  if (!same) return nullptr;
  return is_untouched(*frame) || is_current(*target.driver, frame->target.context) ? frame
                                                                                   : nullptr;
}

// Nothing can be done about it and nobody may be stopped by it; but it is said.
void report_failed_restore(const Frame& frame, CUresult status) noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED) return;
  if (is_process_fault(status)) return;  // that is said once, and there is no work to be disturbed
  if (frame.tenant == nullptr || frame.tenant->recorder == nullptr) return;
  const TenantIdentity& tenant = *frame.tenant;
  try {
    tenant.recorder->record(Severity::error, tenant.id, tenant.name, "guard",
                            std::string(frame.function) +
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

// The frame that decided what is on the thread's stack now, from `frame` outwards.
Frame* base(Frame* frame) noexcept {
  while (frame != nullptr && frame->way != Frame::Way::full) frame = frame->outer;
  return frame;
}

// Empties the stack of a thread that a frame stands on without having taken what was there. All
// below the frame's own context is the thread's, and owed from now on: it is no damage.
Emptied empty_down_to(Frame& frame) noexcept {
  TakenContexts found;
  Emptied left;
  left.status = take_stack(*frame.target.driver, found);
  const CUcontext under = std::exchange(frame.under, nullptr);
  std::uint32_t count = found.count;  // without what was there before, as far as it is known
  if (count > 0 && under != nullptr && found.at(count - 1) == under) --count;
  std::uint32_t own = count;  // the place of its own context, from the top
  while (own > 0 && found.at(own - 1) != frame.target.context) --own;
  if (own > 0) {
    for (std::uint32_t i = own; i < found.count; ++i) frame.more.taken.add(found.at(i));
    left.count = own;
  } else {
    if (under != nullptr) frame.more.taken.add(under);
    left.count = count;
  }
  if (left.count > 0) {
    left.top = found.at(0);
    left.bottom = found.at(static_cast<std::uint32_t>(left.count) - 1);
  }
  found.clear();
  return left;
}

// Empties the thread's stack, strikes when something else than the target was there. Returns the
// driver's status.
CUresult clear_stack(Frame& frame) noexcept {
  Frame* const full = base(&frame);
  const bool stands = full != nullptr && (full->quick || full->under != nullptr);
  const Emptied left = stands ? empty_down_to(*full) : empty_stack(*frame.target.driver);
  if (stands) full->quick = false;
  // A function that starts with no context may have called the runtime library, which makes one
  // current and leaves it; the gate made that the tenant's own.
  const bool captured =
      frame.target.context == nullptr && left.count == 1 && frame.more.captured.has(left.top);
  if (left.status == CUDA_SUCCESS && frame.tenant != nullptr && !captured) {
    char text[128];
    const char* what = damage(frame.target.context, left, text, sizeof text);
    if (what != nullptr) {
      strike(*frame.tenant, frame.more.strikes, frame.function, what);
    }
  }
  return left.status;
}

// Takes away what the frame stands on, before code inside could get at it: from then on the frame
// is like any other.
[[gnu::cold, gnu::noinline]] void stand_alone(Frame& frame) noexcept {
  const DriverTable& driver = *frame.target.driver;
  CUcontext own = nullptr, under = nullptr;
  if (driver.ctx_pop(&own) != CUDA_SUCCESS) return;
  // The last that is owed, should it be out of the thread's reach already.
  if (driver.ctx_pop(&under) == CUDA_SUCCESS) {
    frame.more.taken.add(under);
    frame.under = nullptr;
  }
  put_back(driver, own);
}

void leave_nested(Frame& frame) noexcept {
  if (is_untouched(frame) || is_current(*frame.target.driver, frame.target.context)) return;
  CUresult status = clear_stack(frame);
  if (Frame* full = innermost_place()) full->more.pushed = 0;
  if (frame.target.context != nullptr) {
    const CUresult pushed = frame.target.driver->ctx_push(frame.target.context);
    if (status == CUDA_SUCCESS) status = pushed;
  }
  report_failed_restore(frame, status);
}

// A plug-in starts with the mode that every thread starts with, and leaves the thread's own alone.
CUresult enter_capture_mode(Frame& frame) noexcept {
  frame.more.capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return frame.target.driver->exchange_capture_mode(&frame.more.capture_mode);
}

void leave_capture_mode(const Frame& frame) noexcept {
  CUstreamCaptureMode mode = frame.more.capture_mode;
  CUresult status = frame.target.driver->exchange_capture_mode(&mode);
  if (status != CUDA_SUCCESS) {  // as with the context stack: nothing else puts it right
    mode = frame.more.capture_mode;
    status = frame.target.driver->exchange_capture_mode(&mode);
  }
  if (status != CUDA_SUCCESS) {
    report_failed_restore(frame, status);
  } else if (mode != CU_STREAM_CAPTURE_MODE_GLOBAL) {
    strike(*frame.tenant, frame.more.strikes, frame.function,
           "left another stream-capture mode behind; the thread's own was put back");
  }
}

// Takes the thread's contexts away and makes the target current. On an error nothing has changed.
CUresult enter_full(Frame& frame) noexcept {
  const GuardTarget& target = frame.target;
  CUresult status = CUDA_SUCCESS;
  ThreadNotes& thread = thread_notes;
  const bool watched = target.driver->current_is_watched;
  const bool outermost = thread.innermost.none();
  frame.seen = watched ? thread.changes : 0;
  const bool was_empty =
      (outermost && watched && thread.known_at == thread.changes && thread.outside == nullptr) ||
      is_current(*target.driver, nullptr);
  if (!was_empty) status = take_stack(*target.driver, frame.more.taken);
  if (status == CUDA_SUCCESS && target.occupancy != nullptr) {
    status = target.occupancy->enter(&frame.target.context, &frame.seat);
  }
  if (status != CUDA_SUCCESS) frame.target.occupancy = nullptr;  // nothing to leave
  if (status == CUDA_SUCCESS && frame.target.context != nullptr) {
    status = target.driver->ctx_push(frame.target.context);
    if (status == CUDA_SUCCESS && frame.tenant != nullptr) {
      status = enter_capture_mode(frame);
      // What was seen while nobody watched may have changed unseen.
      const bool as_at_first = outermost && watched && frame.more.taken.count <= 1 &&
                               frame.more.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
      if (status == CUDA_SUCCESS && as_at_first) {
        thread.known_at = thread.changes;
        thread.sound_at = 0;  // it was of what was outside before
        thread.outside = frame.more.taken.empty() ? nullptr : frame.more.taken.own[0];
      }
      CUcontext popped = nullptr;
      if (status != CUDA_SUCCESS) target.driver->ctx_pop(&popped);
    }
  }
  if (status == CUDA_SUCCESS) {
    // Asked for now, for a tenant may end under a thread that is inside. One that wants to know is
    // the gate's, and those never end.
    if (frame.tenant != nullptr) {
      frame.more.tells_end = frame.tenant->guard_ended.load(std::memory_order_relaxed) != nullptr;
    }
    return status;
  }
  if (frame.target.occupancy != nullptr) target.occupancy->leave(frame.seat);
  give_back_stack(*target.driver, frame.more.taken);
  frame.seen = 0;
  return status;
}

// Before what is current changes: captures are ended where they were begun.
void end_stream_captures(Frame& frame) noexcept {
  const DriverTable& driver = *frame.target.driver;
  while (CUstream stream = frame.more.stream_captures.take()) {
    CUgraph graph = nullptr;
    if (driver.stream_end_capture == nullptr || driver.graph_destroy == nullptr) continue;
    if (driver.stream_end_capture(stream, &graph) == CUDA_SUCCESS && graph != nullptr) {
      driver.graph_destroy(graph);
    }
    if (frame.tenant != nullptr) {
      strike(*frame.tenant, frame.more.strikes, frame.function,
             "left the capture of a stream open; it was ended");
    }
  }
}

// True when just the frame's own context was there, and is gone now: what nearly always happens.
// What it stands on is there and stays.
bool pop_own(const Frame& frame) noexcept {
  CUcontext left = nullptr;
  const DriverTable& driver = *frame.target.driver;
  if (frame.target.context == nullptr || driver.ctx_pop(&left) != CUDA_SUCCESS) return false;
  if (left == frame.target.context && is_current(driver, frame.under)) return true;
  put_back(driver, left);  // all is looked at, from the top
  return false;
}

void leave_full(Frame& frame) noexcept {
  if (!frame.more.stream_captures.empty()) end_stream_captures(frame);
  if (frame.target.context != nullptr && frame.tenant != nullptr) leave_capture_mode(frame);
  const CUresult cleared = pop_own(frame) ? CUDA_SUCCESS : clear_stack(frame);
  const CUresult restored = give_back_stack(*frame.target.driver, frame.more.taken);
  if (frame.target.occupancy != nullptr) frame.target.occupancy->leave(frame.seat);
  if (!frame.more.captured.empty()) frame.more.captured.leave_all();
  const CUresult status = cleared != CUDA_SUCCESS ? cleared : restored;
  if (status != CUDA_SUCCESS) thread_notes.changed();  // the thread is not known any more
  report_failed_restore(frame, status);
  if (!frame.more.tells_end) return;
  if (auto* const ended = frame.tenant->guard_ended.load(std::memory_order_relaxed)) {
    ended(frame.tenant->gated.load(std::memory_order_acquire));
  }
}

// For the timeline: the thread was in a context from enter to here.
void record_guard(const Frame& frame) noexcept {
  Span span;
  span.begin = frame.more.observed_from;
  span.end = timeline_now();
  span.category = SpanCategory::guard;
  span.verb = "guard";
  span.values[0] = frame.target.generation;
  if (frame.tenant != nullptr) span.tenant = frame.tenant->id.value;
  set_subject(span, frame.function);
  record_span(span);
}

// What is not nested stands in functions of its own, so that a nested guard saves no registers for
// it: nested ones are what a guard costs most often.
[[gnu::noinline]] CUresult enter_outermost(Frame& frame) noexcept {
  if (timeline_observed()) frame.more.observed_from = timeline_now();
  if (is_known(frame.target)) {
    const Pushed done = push_known(frame.target);
    if (done.status == CUDA_SUCCESS) {
      note_known(frame, done);
    } else {
      link(frame);
    }
    return done.status;
  }
  const CUresult status = enter_full(frame);
  frame.way = status == CUDA_SUCCESS ? Frame::Way::full : Frame::Way::nothing;
  link(frame);
  return status;
}

[[gnu::noinline]] void leave_and_look(Frame& frame) noexcept {
  if (frame.way == Frame::Way::nested) {
    leave_nested(frame);
  } else {
    if (!leave_known(frame)) leave_full(frame);
    if (frame.more.observed_from != 0) record_guard(frame);
  }
  thread_notes.innermost.set(frame.outer);
}

// The broker's own code is balanced; only a plug-in's function is looked at.
bool is_looked_at(const Frame& frame) noexcept {
  return frame.way == Frame::Way::full || (frame.way == Frame::Way::nested &&
                                           frame.tenant != nullptr && frame.more.look_when_nested);
}

}  // namespace

[[gnu::noinline]] void make_frame_of_lean_guard() noexcept {
  ThreadNotes& thread = thread_notes;
  const GuardedPlace& place = *thread.place;
  GuardRoom& room = thread.innermost.room();
  static_assert(sizeof(Frame) <= sizeof room.frame && alignof(Frame) <= alignof(GuardRoom));
  auto& frame = *new (room.frame) Frame(
      place.target, {.tenant = place.tenant, .function = room.doing, .look_when_nested = false});
  // Counted before it is not lean any more: there is no moment at which nobody seems to be inside.
  thread.shard.load(std::memory_order_relaxed)->count_entered();
  note_known(frame, {CUDA_SUCCESS, thread.context, nullptr});
}

[[gnu::noinline]] void leave_lean_and_look(CUresult popped, CUcontext left) noexcept {
  ThreadNotes& thread = thread_notes;
  const DriverTable& driver = *thread.place->target.driver;
  const bool own = popped == CUDA_SUCCESS && left == thread.context;
  if (own && is_under(thread.outside, driver)) return note_lean_end();
  Frame* const frame = innermost_frame();
  if (popped == CUDA_SUCCESS) {  // by ways that the gate does not see: all is looked at
    thread.changed();
    put_back(driver, left);
  }
  leave(*frame);
}

CUresult enter(Frame& frame) noexcept {
  frame.way = Frame::Way::nothing;
  if (frame.target.driver != nullptr) {
    const Frame* outer = inside(frame.target);
    if (outer == nullptr) return enter_outermost(frame);
    frame.way = Frame::Way::nested;
    frame.target.context = outer->target.context;
    frame.seen = frame.target.driver->current_is_watched ? thread_notes.changes : 0;
  }
  link(frame);
  return CUDA_SUCCESS;
}

void current_may_have_changed() noexcept {
  Frame* const full = base(innermost_frame());
  thread_notes.changed();
  if (full == nullptr || !full->quick) return;
  full->quick = false;
  if (full->under != nullptr) stand_alone(*full);
}

void enter_host(Frame& frame) noexcept {
  frame.way = Frame::Way::host;
  link(frame);
}

void leave(Frame& frame) noexcept {
  if (is_looked_at(frame)) return leave_and_look(frame);
  thread_notes.innermost.set(frame.outer);
}

void stream_capture_begun(CUstream stream) noexcept {
  if (Frame* frame = innermost_place()) {
    frame->more.stream_captures.begun(stream);
    if (!frame->quick) return;
    frame->quick = false;  // and so it would be passed over when something changes
    if (frame->under != nullptr) stand_alone(*frame);
  }
}

void stream_capture_ended(CUstream stream) noexcept {
  for (Frame* frame = innermost_frame(); frame != nullptr; frame = frame->outer) {
    if (frame->more.stream_captures.ended(stream)) return;
  }
}

TenantId running_tenant() noexcept {
  const Frame* frame = innermost_frame();
  if (frame == nullptr || frame->tenant == nullptr) return host_tenant;
  return frame->tenant->id;
}

}  // namespace ctxbroker::detail
