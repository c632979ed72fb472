// SPDX-License-Identifier: Apache-2.0
// Frames of the host's guards. The host may end a guard by mistake on another thread, or before a
// guard that began inside. The thread's list of frames must stay sound until the thread itself
// leaves the frame, so the frame lies in the broker's memory and not in the host's object.
#pragma once

#include "context/guard.hpp"
#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {

// Made and reused by one thread.
struct GuardFrame {
  explicit GuardFrame(std::uint64_t its_thread) noexcept : thread(its_thread) {}
  ~GuardFrame() {}

  union {
    Frame frame;  // which enter constructs
  };
  GuardFrame* next = nullptr;  // in ThreadState::spare_guards
  const std::uint64_t thread;  // the system's id
};

inline GuardFrame& guard_frame_of(Frame& frame) noexcept {
  return reinterpret_cast<GuardFrame&>(frame);  // of a union, which comes first
}

[[gnu::cold]] GuardFrame* make_guard_frame() noexcept;

// Returns a frame that enter may construct, or null: see no_guard_frame. It is the thread's until
// give_back_guard_frame. A thread's first ones are allocated, and freed when the thread ends.
inline GuardFrame* take_guard_frame() noexcept {
  GuardFrame* const spare = thread_state.spare_guards;
  if (spare == nullptr) [[unlikely]]
    return make_guard_frame();
  thread_state.spare_guards = spare->next;
  return spare;
}

// The Error after take_guard_frame gave none: out_of_host_memory or system_limit.
[[gnu::cold]] Error no_guard_frame();

// On the thread that took it, after leave.
inline void give_back_guard_frame(GuardFrame& guard) noexcept {
  guard.next = thread_state.spare_guards;
  thread_state.spare_guards = &guard;
}

// Ends a guard that is not the innermost one of the calling thread, and says so to the host. Its
// thread leaves it later, if there is one.
[[gnu::cold]] void abandon_guard(GuardFrame& guard) noexcept;

// Ends a guard on any thread. The caller does not use it afterwards.
inline void end_guard(GuardFrame& guard) noexcept {
  if (thread_state.innermost != &guard.frame) [[unlikely]]
    return abandon_guard(guard);
  leave(guard.frame);
  give_back_guard_frame(guard);
  leave_abandoned();
}

}  // namespace ctxbroker::detail
