// SPDX-License-Identifier: Apache-2.0
// What the broker remembers of each thread for its guards.
#pragma once

#include <cstdint>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

struct Frame;
struct GuardFrame;
class GatedTenant;

// Only its own thread uses it. It has no destructor, because guards are still entered when static
// objects end, after the main thread's thread_local objects have ended.
struct ThreadState {
  Frame* innermost = nullptr;
  std::uint64_t number = 0;       // unique in the process and never used again; 0: none yet
  std::uint32_t slot_hint = 0;    // index of the slot that is likely free for this thread
  bool several_tenants = false;   // have called here, outside of guards
  bool is_in_hosts_call = false;  // in a real-time session: see RealtimeWork
  bool captures_job = false;      // see OpenCaptures::OfJob

  // The gate raises `changes` before each call that may change which context is current here, or
  // the thread's stream-capture mode. When `known_at` equals it, nothing but `outside` was current
  // when no guard stood, and the capture mode was CU_STREAM_CAPTURE_MODE_GLOBAL.
  std::uint64_t changes = 1;
  std::uint64_t known_at = 0;
  CUcontext outside = nullptr;

  // Set while the driver calls a function of this tenant here, such as a host function. No function
  // of the driver may be called then, and nothing may wait for work on the device.
  GatedTenant* callback_of = nullptr;
  // Where the call of a guarded function that has just come in returns to.
  const void* called_from = nullptr;
  const char* works_for = nullptr;     // see work_for_owner
  GuardFrame* spare_guards = nullptr;  // frames for this thread's guards; see guard_frame.hpp
};

// "initial-exec" makes it one load instead of a call. The library is often opened late, and then
// this must fit into the little room that the C library keeps for late libraries: keep it small.
[[gnu::tls_model("initial-exec")]] extern constinit thread_local ThreadState thread_state;

// Returns whether the driver has called the function that runs on this thread.
inline bool is_in_callback() noexcept {
  return thread_state.callback_of != nullptr;
}

[[gnu::cold]] std::uint64_t number_this_thread() noexcept;

// The calling thread's number. The first call on a thread gives it one.
inline std::uint64_t thread_number() noexcept {
  return thread_state.number != 0 ? thread_state.number : number_this_thread();
}

}  // namespace ctxbroker::detail
