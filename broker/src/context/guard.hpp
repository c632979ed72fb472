// Puts the calling thread into a context (or into none) and takes it out again, whatever a plug-in
// did to the thread's context stack meanwhile.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "context/capture.hpp"
#include "context/context_stack.hpp"
#include "context/occupancy.hpp"
#include "context/tenant_identity.hpp"
#include "context/thread_notes.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Where a guard goes. Two targets are the same place when their generations are equal: handle
// values are reused by the driver and say nothing.
struct GuardTarget {
  const DriverTable* driver = nullptr;  // null: no driver is open, the guard does nothing
  CUcontext context = nullptr;          // null: no context is to be current
  std::uint64_t generation = 0;         // 0 exactly when context is null
  // Counts who is inside, and may choose another context of the same lease for this thread. Null
  // where nobody asks.
  Occupancy* occupancy = nullptr;
};

// Whose function runs inside, and where a breach is counted. Borrowed for the guard's life.
struct GuardedCall {
  const TenantIdentity* tenant = nullptr;         // null: the broker's own code, not checked
  std::atomic<std::uint64_t>* strikes = nullptr;  // may be null
  const char* function = "";                      // static text: "process"
  // Whether a nested guard looks at what is current when it ends, too. Where it does not, the
  // outermost one repairs what was left behind; guards in between enter a right context anew.
  bool look_when_nested = true;
  const char* plugin = nullptr;  // its short name, where one plug-in is meant
};

// A place that guards of one tenant go to again and again. It outlives every guard there.
struct GuardedPlace {
  GuardTarget target;
  const TenantIdentity* tenant;
};

// One entry of the thread's list of frames. It lives in the guard, on the stack.
struct Frame {
  enum class Way : std::uint8_t {
    nothing,  // no driver, or entering failed: nothing to undo
    host,     // a call from a plug-in back into the host
    nested,   // the context was current already: one look, no push
    full,     // the thread's stack was taken away and the context pushed
  };
  // What few guards need.
  struct More {
    std::atomic<std::uint64_t>* strikes = nullptr;  // as GuardedCall has it
    bool look_when_nested = false;
    bool tells_end = false;  // somebody wants to know when the guard has ended
    CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;  // the thread's, until leave
    std::uint64_t observed_from = 0;  // ns; 0 when no timeline was recorded
    TakenContexts taken{};            // the thread's own, until leave
    // The gate's: leases it made current inside, and how many contexts the code inside has pushed.
    Captures captured{};
    OpenStreamCaptures stream_captures{};
    int pushed = 0;
  };

  Frame() noexcept = default;
  Frame(const GuardTarget& where, const GuardedCall& call) noexcept
      : target(where), tenant(call.tenant), function(call.function) {
    more.strikes = call.strikes;
    more.look_when_nested = call.look_when_nested;
  }

  Way way = Way::nothing;
  bool quick = false;      // entered on a thread that was known, and to be left as fast
  std::uint64_t seen = 0;  // the thread's changes, when it was entered; 0: nobody watches
  Frame* outer = nullptr;
  GuardTarget target;                      // its context: what was made current, perhaps a sibling
  const TenantIdentity* tenant = nullptr;  // whose code runs inside; null: the broker's own
  const char* function = "";
  CUcontext under = nullptr;  // the thread's own, which it stands on; not in `taken`
  Seat* seat = nullptr;       // in the target's occupancy
  More more;
};

// The thread's innermost frame, or null. A lean guard has none until somebody asks for it here:
// nobody looks at thread_notes.innermost itself but to see whether there is one.
inline Frame* innermost_frame() noexcept {
  if (thread_notes.innermost.is_lean()) make_frame_of_lean_guard();
  return thread_notes.innermost.frame();
}

// The one pair under every guard. `frame` comes with its target and call, the rest is filled by
// enter; it must live until leave, and frames of a thread nest. Afterwards the thread's context
// stack and stream-capture mode are what they were before, or a record says that the driver
// refused. Neither throws. Neither allocates, but for a thread with more contexts of its own than a
// frame has room for, nor takes a lock, but for number_this_thread's in the thread's first one.
CUresult enter(Frame& frame) noexcept;
void leave(Frame& frame) noexcept;

// Same list, for calls from a plug-in back into the host; makes no driver call.
void enter_host(Frame& frame) noexcept;

// The gate's word, on the thread it happens on, of each call that may change what is current there
// or the stream-capture mode. With a table that is watched so, a guard costs one push and one pop,
// and a nested one no driver call.
void current_may_have_changed() noexcept;

// The thread's innermost frame that says what may be current, or null: the gate's calls are made in
// it. Of a frame of the host, none.
inline Frame* innermost_place() noexcept {
  Frame* frame = innermost_frame();
  while (frame != nullptr && frame->way == Frame::Way::nested) frame = frame->outer;
  return frame != nullptr && frame->way == Frame::Way::full ? frame : nullptr;
}

// A stream's capture was begun, or ended, by code inside this thread's guards.
void stream_capture_begun(CUstream stream) noexcept;
void stream_capture_ended(CUstream stream) noexcept;

// Whose code runs on this thread, as its frames tell.
struct FrameOwner {
  bool decided = false;                    // false: there is no frame that says so
  const TenantIdentity* tenant = nullptr;  // null: the host
};
inline FrameOwner frame_owner() noexcept {
  for (const Frame* frame = innermost_frame(); frame != nullptr; frame = frame->outer) {
    if (frame->way == Frame::Way::host) return {true, nullptr};
    if (frame->tenant != nullptr) {
      return {true, frame->tenant->id == host_tenant ? nullptr : frame->tenant};
    }
  }
  return {};
}

// Whose code runs on this thread: the tenant of the innermost frame, or the host.
TenantId running_tenant() noexcept;

// RAII form. After a failed enter the thread is as it was, and status() says why.
class ContextGuard {
 public:
  explicit ContextGuard(const GuardTarget& target, const GuardedCall& call = {}) noexcept
      : frame_(target, call), status_(enter(frame_)) {}
  ~ContextGuard() { leave(frame_); }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

  CUresult status() const noexcept { return status_; }

 private:
  Frame frame_;
  CUresult status_;
};

class HostFrame {
 public:
  HostFrame() noexcept { enter_host(frame_); }
  ~HostFrame() { leave(frame_); }
  HostFrame(const HostFrame&) = delete;
  HostFrame& operator=(const HostFrame&) = delete;

 private:
  Frame frame_;
};

// Callable form: runs `work`, which returns a CUresult, inside the target; its status, or the
// guard's when that fails.
template <typename Work>
CUresult guarded(const GuardTarget& target, const GuardedCall& call, Work&& work) {
  const ContextGuard guard(target, call);
  return guard.status() == CUDA_SUCCESS ? std::forward<Work>(work)() : guard.status();
}

// The same for work that gives something back, which would be lost for good: a context that cannot
// be entered is tried once more. `work` runs once at most.
template <typename Work>
CUresult guarded_end(const GuardTarget& target, Work&& work) {
  {
    const ContextGuard guard(target);
    if (guard.status() == CUDA_SUCCESS) return work();
  }
  return guarded(target, {}, std::forward<Work>(work));
}

}  // namespace ctxbroker::detail
