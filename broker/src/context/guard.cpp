// SPDX-License-Identifier: Apache-2.0
#include "context/guard.hpp"

#include <algorithm>
#include <cstdio>
#include <new>
#include <string>
#include <utility>

#include "context/open_captures.hpp"
#include "driver/driver_error.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {

constinit thread_local ThreadState thread_state;

namespace {

void push_frame(Frame& frame) noexcept {
  frame.outer = thread_state.innermost;
  thread_state.innermost = &frame;
}

bool is_current(const DriverTable& driver, CUcontext context) noexcept {
  CUcontext current = nullptr;
  return driver.ctx_get_current(&current) == CUDA_SUCCESS && current == context;
}

// The frame whose context is on top of the thread's stack, from `frame` outwards.
Frame* pushed_from(Frame* frame) noexcept {
  while (frame != nullptr && frame->way != Frame::Way::pushed) frame = frame->outer;
  return frame;
}

// The frame that has made the target current already, if the target is still current; or null.
const Frame* frame_inside(const GuardTarget& target) noexcept {
  const Frame* frame = thread_state.innermost;
  while (frame != nullptr && frame->way != Frame::Way::nested && frame->way != Frame::Way::pushed) {
    frame = frame->outer;
  }
  const bool same = frame != nullptr && frame->target.driver == target.driver &&
                    frame->target.generation == target.generation;
  if (!same) return nullptr;
  return is_untouched(*frame) || is_current(*target.driver, frame->target.context) ? frame
                                                                                   : nullptr;
}

// The frame of the innermost call into a tenant's code, unless that has called the host.
const Frame* calling_plugin() noexcept {
  const Frame* frame = thread_state.innermost;
  while (frame != nullptr && frame->tenant == nullptr && frame->way != Frame::Way::host) {
    frame = frame->outer;
  }
  return frame != nullptr && frame->way != Frame::Way::host ? frame : nullptr;
}

// Counts a breach by the code inside, but not once the host has abandoned the guard: what happened
// to the thread since then is the host's.
void blame(const Frame& frame, const char* what) noexcept {
  if (frame.tenant == nullptr || frame.end.load(std::memory_order_relaxed) != FrameEnd::none)
    return;
  strike(*frame.tenant, frame.strikes, frame.function, what);
}

// Only records the failure, because nothing can be done about it and nobody should be stopped.
void report_failed_restore(const Frame& frame, CUresult status) noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED) return;
  // The first is the answer in a forked process. A fault is recorded once, where it was met.
  if (status == CUDA_ERROR_NOT_INITIALIZED || is_process_fault(status)) return;
  if (frame.tenant == nullptr) return;
  frame.tenant->log(Severity::error, "guard", [&] {
    return std::string(frame.function) + ": the thread's context stack could not be restored: " +
           status_text(*frame.target.driver, status);
  });
}

// Describes for a strike what the code inside left behind. Null when it left the stack as it was.
// Foreign code may also leave it empty: alone in a process, it would pop its own contexts.
const char* damage(const Frame& frame, const Emptied& left, char* text,
                   std::size_t bytes) noexcept {
  CUcontext const context = frame.target.context;
  if (left.count == 0 && !frame.calls_plugin) return nullptr;
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

// A function that starts without a context may call the runtime library, which makes one current
// and leaves it. The gate made that the tenant's own. If the frame's lease is lost meanwhile, the
// tenant may begin anew with the next one.
bool may_leave(Frame& frame, CUcontext context) noexcept {
  const auto& leases = frame.extras().translated;
  return std::any_of(leases.begin(), leases.end(), [&](const auto& lease) {
    return lease.slot->context == context && (frame.target.context == nullptr || lease.is_next);
  });
}

// Empties the thread's stack, and records a strike when it held anything but the target. Returns
// the driver's status.
CUresult clear_stack(Frame& frame) noexcept {
  Frame* const pushed = pushed_from(&frame);
  const bool on_top = pushed != nullptr && (pushed->undisturbed || pushed->under != nullptr);
  const DriverTable& driver = *frame.target.driver;
  // Contexts below the frame's one belong to the thread, and are no damage.
  const Emptied left =
      on_top ? empty_stack_to(driver, pushed->target.context, std::exchange(pushed->under, nullptr),
                              pushed->extras().taken)
             : empty_stack(driver);
  if (on_top) pushed->undisturbed = false;
  const bool is_own = left.count == 1 && may_leave(frame, left.top);
  if (left.status == CUDA_SUCCESS && !is_own) {
    char text[128];
    const char* what = damage(frame, left, text, sizeof text);
    if (what != nullptr) blame(frame, what);
  }
  return left.status;
}

// Takes the thread's own context away from below the frame's, so that the code inside cannot reach
// it.
[[gnu::cold, gnu::noinline]] void take_what_is_under(Frame& frame) noexcept {
  const DriverTable& driver = *frame.target.driver;
  CUcontext own = nullptr, under = nullptr;
  if (driver.ctx_pop(&own) != CUDA_SUCCESS) return;
  if (driver.ctx_pop(&under) == CUDA_SUCCESS) {
    frame.extras().taken.add(under);
    frame.under = nullptr;
  }
  put_back(driver, own);
}

void leave_nested(Frame& frame) noexcept {
  if (is_untouched(frame) || is_current(*frame.target.driver, frame.target.context)) return;
  CUresult status = clear_stack(frame);
  if (frame.target.context != nullptr) {
    const CUresult put = frame.target.driver->ctx_push(frame.target.context);
    if (status == CUDA_SUCCESS) status = put;
  }
  report_failed_restore(frame, status);
}

CUresult enter_capture_mode(Frame& frame, CUstreamCaptureMode mode) noexcept {
  frame.extras().capture_mode = mode;
  return frame.target.driver->exchange_capture_mode(&frame.extras().capture_mode);
}

// On a thread with an open capture, which is not that of the code inside.
void relax_capture_mode(Frame& frame) noexcept {
  frame.extras().relaxed =
      enter_capture_mode(frame, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS;
}

void leave_capture_mode(Frame& frame) noexcept {
  CUstreamCaptureMode mode = frame.extras().capture_mode;
  CUresult status = frame.target.driver->exchange_capture_mode(&mode);
  if (status != CUDA_SUCCESS) {  // tries once more, because nothing else restores the mode
    mode = frame.extras().capture_mode;
    status = frame.target.driver->exchange_capture_mode(&mode);
  }
  if (status != CUDA_SUCCESS) {
    report_failed_restore(frame, status);
  } else if (mode != (frame.extras().relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED
                                             : CU_STREAM_CAPTURE_MODE_GLOBAL)) {
    blame(frame, "left another stream-capture mode behind; the thread's own was put back");
  }
}

// A guard of the thread is in some lease.
bool is_in_any_lease() noexcept {
  for (const Frame* frame = thread_state.innermost; frame != nullptr; frame = frame->outer) {
    if (frame->slot != nullptr) return true;
  }
  return false;
}

void leave_users(Frame& frame) noexcept {
  if (frame.slot != nullptr) LeaseUsers::leave(*std::exchange(frame.slot, nullptr));
}

void leave_translated(Frame& frame) noexcept {
  for (const auto& lease : frame.extras().translated) LeaseUsers::leave(*lease.slot);
  frame.extras().translated.clear();
}

// Takes the thread's contexts away and makes the target current. After an error nothing has
// changed.
[[gnu::cold, gnu::noinline]] CUresult push_alone(Frame& frame) noexcept {
  const DriverTable& driver = *frame.target.driver;
  ThreadState& thread = thread_state;
  const bool watched = driver.current_is_watched;
  const bool outermost = thread.innermost == nullptr;
  // Before anything is made that the thread's capture must not see.
  if (OpenCaptures::all().is_open_here()) relax_capture_mode(frame);
  const bool relaxed = frame.has_extras && frame.extras().relaxed;
  CUresult status =
      is_current(driver, nullptr) ? CUDA_SUCCESS : take_stack(driver, frame.extras().taken);
  if (status == CUDA_SUCCESS && frame.target.users != nullptr) {
    status = frame.target.users->enter(&frame.slot, !is_in_any_lease());
    if (status == CUDA_SUCCESS) frame.target.context = frame.slot->context;
  }
  if (status == CUDA_SUCCESS && frame.target.context != nullptr) {
    status = driver.ctx_push(frame.target.context);
    // A tenant's code starts with the mode that every thread starts with, whatever the thread's is.
    if (status == CUDA_SUCCESS && frame.tenant != nullptr && !relaxed) {
      status = enter_capture_mode(frame, CU_STREAM_CAPTURE_MODE_GLOBAL);
      CUcontext popped = nullptr;
      if (status != CUDA_SUCCESS) driver.ctx_pop(&popped);
    }
  }
  if (status != CUDA_SUCCESS) {
    leave_users(frame);
    give_back_stack(driver, frame.extras().taken);
    if (relaxed) leave_capture_mode(frame);
    return status;
  }
  frame.changes = watched ? thread.changes : 0;
  // From now on the gate says when this changes. Only frames with a tenant have looked at the mode.
  if (outermost && watched && frame.tenant != nullptr && frame.target.context != nullptr &&
      frame.extras().taken.count <= 1 && !relaxed &&
      frame.extras().capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL) {
    thread.known_at = thread.changes;
    thread.outside = frame.extras().taken.empty() ? nullptr : frame.extras().taken.own[0];
  }
  return CUDA_SUCCESS;
}

// Captures are ended in the context where they were begun.
void end_stream_captures(Frame& frame) noexcept {
  const DriverTable& driver = *frame.target.driver;
  int left = 0;
  OpenCaptures::all().end_left(&frame, [&](CUstream stream) {
    CUgraph graph = nullptr;
    if (driver.stream_end_capture == nullptr || driver.graph_destroy == nullptr) return;
    const CUresult status = driver.stream_end_capture(stream, &graph);
    if (status == CUDA_ERROR_ILLEGAL_STATE) return;  // it has no capture
    if (status == CUDA_SUCCESS && graph != nullptr) driver.graph_destroy(graph);
    ++left;
  });
  for (; left > 0; --left) blame(frame, "left the capture of a stream open; it was ended");
}

// Pops the frame's context. False, and the stack is as it was, when another context was on top, or
// it looks below and what should be there is not.
bool pop_own(const Frame& frame, bool looks_below) noexcept {
  CUcontext left = nullptr;
  const DriverTable& driver = *frame.target.driver;
  if (frame.target.context == nullptr || driver.ctx_pop(&left) != CUDA_SUCCESS) return false;
  if (left == frame.target.context && (!looks_below || is_current(driver, frame.under))) {
    return true;
  }
  put_back(driver, left);
  return false;
}

// Somebody bypassed the gate: the thread is not known any more.
[[gnu::cold, gnu::noinline]] void forget_thread() noexcept {
  ++thread_state.changes;
}

// Pops what was pushed. Returns false when something else has happened.
bool pop_from_top(Frame& frame) noexcept {
  if (!frame.undisturbed || !is_untouched(frame)) return false;
  if (!pop_own(frame, frame.looks_below)) {
    forget_thread();
    return false;
  }
  leave_users(frame);
  return true;
}

// Takes the context of an abandoned frame out of the thread's stack. What the host has pushed since
// then stays, above what the thread had before.
[[gnu::cold, gnu::noinline]] CUresult remove_own(Frame& frame) noexcept {
  TakenContexts kept;
  CUresult status = take_stack(*frame.target.driver, kept);
  kept.remove_lowest(frame.target.context);
  TakenContexts& before = frame.extras().taken;
  if (!kept.append(before)) status = CUDA_ERROR_OUT_OF_MEMORY;
  before = std::move(kept);
  frame.under = nullptr;
  return status;
}

CUresult clear(Frame& frame) noexcept {
  if (pop_own(frame, true)) return CUDA_SUCCESS;
  const bool is_abandoned = frame.end.load(std::memory_order_relaxed) != FrameEnd::none;
  return is_abandoned ? remove_own(frame) : clear_stack(frame);
}

[[gnu::cold, gnu::noinline]] void restore(Frame& frame) noexcept {
  if (frame.extras().captures) end_stream_captures(frame);
  const bool relaxed = frame.extras().relaxed;
  if (frame.target.context != nullptr && frame.tenant != nullptr && !relaxed) {
    leave_capture_mode(frame);
  }
  const CUresult cleared = clear(frame);
  const CUresult restored = give_back_stack(*frame.target.driver, frame.extras().taken);
  if (relaxed) leave_capture_mode(frame);
  leave_users(frame);
  leave_translated(frame);
  const CUresult status = cleared != CUDA_SUCCESS ? cleared : restored;
  if (status != CUDA_SUCCESS) forget_thread();
  report_failed_restore(frame, status);
}

// For the timeline: the thread was in a context from enter until now.
[[gnu::cold, gnu::noinline]] void record_guard(const Frame& frame) noexcept {
  Span span;
  span.begin = frame.observed_from;
  span.end = timeline_now();
  span.category = SpanCategory::guard;
  span.verb = "guard";
  span.values[0] = frame.target.generation;
  if (frame.tenant != nullptr) span.tenant = frame.tenant->id.value;
  set_subject(span, frame.function);
  record_span(span);
}

// Prepares the frame for code that may change the context stack, so that leaving it checks the
// stack.
void disturb(Frame& frame) noexcept {
  if (!frame.undisturbed) return;
  frame.undisturbed = false;
  if (frame.under != nullptr) take_what_is_under(frame);
}

[[gnu::cold, gnu::noinline]] void restore_floats(const Frame& frame) noexcept {
  char text[256];
  frame.floats.restore(text, sizeof text);
  blame(frame, text);
}

// The general case of leave.
[[gnu::noinline]] void leave_any(Frame& frame) noexcept {
  if (frame.way == Frame::Way::pushed) {
    if (!pop_from_top(frame)) restore(frame);
    if (frame.observed_from != 0) record_guard(frame);
  } else if (frame.way == Frame::Way::nested && frame.tenant != nullptr && frame.calls_plugin) {
    leave_nested(frame);
  } else if (frame.way == Frame::Way::host) {
    if (frame.has_extras && frame.extras().relaxed) leave_capture_mode(frame);
    if (frame.changes_floats) frame.floats.set();
  }
  thread_state.innermost = frame.outer;
}

}  // namespace

CUresult enter_any(Frame* at, const GuardTarget& target, const TenantIdentity* tenant,
                   std::atomic<std::uint64_t>* strikes, const char* function,
                   bool calls_plugin) noexcept {
  leave_abandoned();
  const GuardedCall call = {
      .tenant = tenant, .strikes = strikes, .function = function, .calls_plugin = calls_plugin};
  const bool observed = target.driver != nullptr && timeline_observed();
  const std::uint64_t observed_from = observed ? timeline_now() : 0;
  if (target.context != nullptr && can_push_on_top(*target.driver)) {
    LeaseSlot* slot = nullptr;
    CUresult status = CUDA_SUCCESS;
    if (target.users != nullptr) status = target.users->enter(&slot, true);
    if (status == CUDA_SUCCESS) {
      CUcontext const context = slot != nullptr ? slot->context : target.context;
      status = push_on_top(at, target, call, context, slot);
    } else {
      new (at) Frame(target, call);
    }
    at->observed_from = observed_from;
    return status;
  }
  Frame& frame = *new (at) Frame(target, call);
  if (target.driver == nullptr) {
    push_frame(frame);
    return CUDA_SUCCESS;
  }
  if (const Frame* outer = frame_inside(target)) {
    frame.way = Frame::Way::nested;
    frame.target.context = outer->target.context;
    frame.changes = target.driver->current_is_watched ? thread_state.changes : 0;
    push_frame(frame);
    return CUDA_SUCCESS;
  }
  frame.observed_from = observed_from;
  const CUresult status = push_alone(frame);
  if (status == CUDA_SUCCESS) frame.way = Frame::Way::pushed;
  push_frame(frame);
  return status;
}

void leave(Frame& frame) noexcept {
  if (frame.tenant != nullptr && !frame.floats.is_set()) [[unlikely]]
    restore_floats(frame);
  CUcontext left = nullptr;
  const bool is_usual =
      frame.undisturbed && !frame.looks_below && frame.observed_from == 0 && is_untouched(frame);
  if (is_usual && frame.target.driver->ctx_pop(&left) == CUDA_SUCCESS) [[likely]] {
    if (left == frame.target.context) [[likely]] {
      leave_users(frame);
      thread_state.innermost = frame.outer;
      return;
    }
    put_back(*frame.target.driver, left);
  }
  leave_any(frame);
}

void enter_host(Frame& frame) noexcept {
  frame.way = Frame::Way::host;
  const Frame* const plugin = calling_plugin();
  if (plugin != nullptr && !plugin->floats.is_set()) [[unlikely]] {
    frame.floats = FloatControl(FloatControl::OfThisThread());
    frame.changes_floats = true;
    plugin->floats.set();
  }
  if (OpenCaptures::all().is_open_here()) {
    const Frame* const pushed = pushed_from(thread_state.innermost);
    frame.target.driver = pushed != nullptr ? pushed->target.driver : nullptr;
    if (frame.target.driver != nullptr) relax_capture_mode(frame);
  }
  push_frame(frame);
}

void leave_without_thread(Frame& frame) noexcept {
  if (frame.has_extras) {
    OpenCaptures::all().end_left(&frame, [](CUstream) {});
    leave_translated(frame);
    frame.extras().taken.more = {};
  }
  leave_users(frame);
}

void current_may_have_changed() noexcept {
  leave_abandoned();
  ++thread_state.changes;
  if (Frame* const pushed = pushed_from(thread_state.innermost)) disturb(*pushed);
}

CUresult enter_translated(Frame& frame, LeaseUsers& users, std::uint64_t generation,
                          CUcontext* context) noexcept {
  disturb(frame);
  auto& leases = frame.extras().translated;
  auto lease = std::find_if(leases.begin(), leases.end(),
                            [&](const auto& one) { return one.generation == generation; });
  if (lease == leases.end()) {
    LeaseSlot* slot = nullptr;
    const CUresult status = users.enter(&slot, false);
    // The tenant's code gets the status of a wait that is not over.
    if (status != CUDA_SUCCESS) return status == no_slot ? CUDA_ERROR_NOT_READY : status;
    try {
      // A tenant has one lease on a device.
      const LeaseUsers* const of_frame = frame.target.users;
      leases.push_front(
          {slot, generation, of_frame != nullptr && of_frame->device() == users.device()});
    } catch (const std::bad_alloc&) {
      LeaseUsers::leave(*slot);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    lease = leases.begin();
  }
  *context = lease->slot->context;
  return CUDA_SUCCESS;
}

void stream_capture_begun(CUstream stream, CUcontext context) noexcept {
  if (Frame* frame = pushed_frame()) {
    disturb(*frame);
    frame->extras().captures = true;
    OpenCaptures::all().begun(frame, stream, context);
  }
}

}  // namespace ctxbroker::detail
