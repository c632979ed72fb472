#include "context/guard.hpp"

#include <cstdio>
#include <string>
#include <vector>

#include "context/context_stack.hpp"
#include "driver/driver_error.hpp"

namespace ctxbroker::detail {
namespace {

// Per thread, because a context stack is. `taken` holds the contexts of the thread's owner while
// guards are entered, and for a moment those that a plug-in left.
struct ThreadFrames {
  Frame* innermost = nullptr;
  std::vector<CUcontext> taken;
};

ThreadFrames& this_thread() noexcept {
  thread_local ThreadFrames frames;
  return frames;
}

void link(ThreadFrames& thread, Frame& frame) noexcept {
  frame.outer = thread.innermost;
  thread.innermost = &frame;
}

// The innermost frame that decided what is current.
const Frame* place(const Frame* frame) noexcept {
  while (frame != nullptr && frame->way != Frame::Way::nested && frame->way != Frame::Way::full) {
    frame = frame->outer;
  }
  return frame;
}

bool is_inside(const ThreadFrames& thread, const GuardTarget& target) noexcept {
  const Frame* frame = place(thread.innermost);
  return frame != nullptr && frame->target.driver == target.driver &&
         frame->target.generation == target.generation;
}

bool is_current(const GuardTarget& target) noexcept {
  CUcontext current = nullptr;
  return target.driver->ctx_get_current(&current) == CUDA_SUCCESS && current == target.context;
}

// Nothing can be done about it and nobody may be stopped by it; but it is said.
void report_failed_restore(const Frame& frame, CUresult status) noexcept {
  if (status == CUDA_SUCCESS || status == CUDA_ERROR_DEINITIALIZED) return;
  if (frame.call.tenant == nullptr || frame.call.tenant->recorder == nullptr) return;
  const Tenant& tenant = *frame.call.tenant;
  try {
    tenant.recorder->record(Severity::error, tenant.id, tenant.name, "guard",
                            std::string(frame.call.function) +
                                ": the thread's context stack could not be restored: " +
                                status_text(*frame.target.driver, status));
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
  }
}

// What the plug-in left, as text for its strike; null when it left what it found.
const char* damage(const GuardTarget& target, const CUcontext* left, std::size_t count, char* text,
                   std::size_t bytes) noexcept {
  const std::size_t expected = target.context != nullptr ? 1 : 0;
  const bool bottom_kept = expected == 0 || (count >= 1 && left[count - 1] == target.context);
  if (bottom_kept && count == expected) return nullptr;
  if (bottom_kept) {
    std::snprintf(text, bytes, "left %zu context(s) pushed; they were removed", count - expected);
  } else if (count == 0) {
    std::snprintf(text, bytes, "popped a context that it did not push; it was put back");
  } else {
    std::snprintf(text, bytes,
                  "left another context current (%p instead of %p); the right one was put back",
                  static_cast<void*>(left[0]), static_cast<void*>(target.context));
  }
  return text;
}

// Empties the thread's stack down to the floor, strikes when something else than the target was
// there. Returns the driver's status.
CUresult clear_stack(ThreadFrames& thread, const Frame& frame) noexcept {
  const std::size_t from = thread.taken.size();
  const CUresult status = drain(*frame.target.driver, thread.taken);
  if (status == CUDA_SUCCESS && frame.call.tenant != nullptr) {
    char text[128];
    const char* what = damage(frame.target, thread.taken.data() + from, thread.taken.size() - from,
                              text, sizeof text);
    if (what != nullptr) {
      strike(*frame.call.tenant, frame.call.strikes, frame.call.function, what);
    }
  }
  thread.taken.resize(from);
  return status;
}

void leave_nested(ThreadFrames& thread, const Frame& frame) noexcept {
  // The broker's own code is balanced; only a plug-in's is looked at.
  if (frame.call.tenant == nullptr || is_current(frame.target)) return;
  CUresult status = clear_stack(thread, frame);
  if (frame.target.context != nullptr) {
    const CUresult pushed = frame.target.driver->ctx_push(frame.target.context);
    if (status == CUDA_SUCCESS) status = pushed;
  }
  report_failed_restore(frame, status);
}

void leave_full(ThreadFrames& thread, const Frame& frame) noexcept {
  const CUresult cleared = clear_stack(thread, frame);
  const CUresult restored = put_back(*frame.target.driver, thread.taken, frame.saved_from);
  report_failed_restore(frame, cleared != CUDA_SUCCESS ? cleared : restored);
}

}  // namespace

CUresult enter(Frame& frame, const GuardTarget& target, const GuardedCall& call) noexcept {
  ThreadFrames& thread = this_thread();
  frame.target = target;
  frame.call = call;
  CUresult status = CUDA_SUCCESS;
  if (target.driver == nullptr) {
    frame.way = Frame::Way::nothing;
  } else if (is_inside(thread, target) && is_current(target)) {
    frame.way = Frame::Way::nested;
  } else {
    frame.saved_from = thread.taken.size();
    status = drain(*target.driver, thread.taken);
    if (status == CUDA_SUCCESS && target.context != nullptr) {
      status = target.driver->ctx_push(target.context);
    }
    frame.way = status == CUDA_SUCCESS ? Frame::Way::full : Frame::Way::nothing;
    if (status != CUDA_SUCCESS) put_back(*target.driver, thread.taken, frame.saved_from);
  }
  link(thread, frame);
  return status;
}

void enter_host(Frame& frame) noexcept {
  frame.way = Frame::Way::host;
  link(this_thread(), frame);
}

void leave(Frame& frame) noexcept {
  ThreadFrames& thread = this_thread();
  switch (frame.way) {
    case Frame::Way::nothing:
    case Frame::Way::host:
      break;
    case Frame::Way::nested:
      leave_nested(thread, frame);
      break;
    case Frame::Way::full:
      leave_full(thread, frame);
      break;
  }
  thread.innermost = frame.outer;
}

TenantId running_tenant() noexcept {
  const Frame* frame = this_thread().innermost;
  if (frame == nullptr || frame->call.tenant == nullptr) return host_tenant;
  return frame->call.tenant->id;
}

}  // namespace ctxbroker::detail
