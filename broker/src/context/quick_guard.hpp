// What a guard costs where nothing has to be looked at: the gate watches, and knows the thread.
// Inline, for a call more would be a good part of it. guard.cpp has everything else.
#pragma once

#include "context/guard.hpp"
#include "context/thread_notes.hpp"

namespace ctxbroker::detail {

// Nothing that was seen has touched the thread since the frame was entered. Never true where nobody
// watches.
inline bool is_untouched(const Frame& frame) noexcept {
  return frame.seen == thread_notes.changes;
}

// The thread is in this life of the tenant's lease, and its innermost frame says so: a guard that
// looks at nothing when it ends need not be there at all.
inline bool is_inside_already(std::uint64_t generation, const TenantIdentity* tenant) noexcept {
  const Frame* const frame = thread_notes.innermost;
  return frame != nullptr && is_untouched(*frame) && frame->target.generation == generation &&
         frame->tenant == tenant;
}

// The thread's innermost frame is in this life of a lease, and what it made current is current
// still. Asks the driver only where something touched the thread, or nobody watches.
inline bool is_inside(std::uint64_t generation) noexcept {
  const Frame* const frame = thread_notes.innermost;
  if (frame == nullptr || frame->target.generation != generation) return false;
  if (is_untouched(*frame)) return true;
  CUcontext current = nullptr;
  return frame->target.driver->ctx_get_current(&current) == CUDA_SUCCESS &&
         current == frame->target.context;
}

// No guard stands on the thread, and this is known to be all that is current on it.
inline bool is_known_to_be_current(CUcontext context) noexcept {
  const ThreadNotes& thread = thread_notes;
  return thread.innermost == nullptr && thread.known_at == thread.changes &&
         thread.outside == context;
}

// What is current on the thread is known, and no guard stands on it: the target can be pushed on
// top, for nothing that is seen gets at what is below.
inline bool is_known(const GuardTarget& target) noexcept {
  return thread_notes.innermost == nullptr && thread_notes.known_at == thread_notes.changes &&
         target.context != nullptr && target.driver->current_is_watched;
}

// What push_known did. After an error nothing was entered.
struct Pushed {
  CUresult status;
  CUcontext context;
  Seat* seat;
};

// Of a target that is_known: makes it current.
inline Pushed push_known(const GuardTarget& target) noexcept {
  Pushed done{CUDA_SUCCESS, target.context, nullptr};
  if (target.occupancy != nullptr) {
    done.status = target.occupancy->enter(&done.context, &done.seat);
    if (done.status != CUDA_SUCCESS) return done;
  }
  done.status = target.driver->ctx_push(done.context);
  if (done.status != CUDA_SUCCESS && target.occupancy != nullptr) {
    target.occupancy->leave(done.seat);
  }
  return done;
}

// After it, for the frame of that target.
inline void note_known(Frame& frame, const Pushed& done) noexcept {
  ThreadNotes& thread = thread_notes;
  frame.way = Frame::Way::full;
  frame.quick = true;
  frame.seen = thread.changes;
  frame.target.context = done.context;
  frame.under = thread.outside;
  frame.seat = done.seat;
  thread.innermost = &frame;
}

// What the thread has current under a frame is looked at once more when the frame has gone: code
// that gets past the gate may do away with its own, but not with the host's.
inline bool is_under(const Frame& frame) noexcept {
  CUcontext current = nullptr;
  return frame.target.driver->ctx_get_current(&current) == CUDA_SUCCESS && current == frame.under;
}

// One pop, where nothing can have happened. False: nothing was done.
inline bool leave_known(Frame& frame) noexcept {
  if (!frame.quick || !is_untouched(frame)) return false;
  CUcontext left = nullptr;
  const DriverTable& driver = *frame.target.driver;
  if (driver.ctx_pop(&left) != CUDA_SUCCESS) return false;
  const bool as_it_was =
      left == frame.target.context && (frame.under == nullptr || is_under(frame));
  if (!as_it_was) {  // by ways that the gate does not see: all is looked at
    ++thread_notes.changes;
    put_back(driver, left);
    return false;
  }
  if (frame.target.occupancy != nullptr) frame.target.occupancy->leave(frame.seat);
  thread_notes.innermost = nullptr;
  return true;
}

}  // namespace ctxbroker::detail
