// SPDX-License-Identifier: Apache-2.0
// Guards make a context, or none, current on the calling thread, and restore the thread afterwards
// whatever the code inside did to its context stack.
#pragma once

#include <atomic>
#include <cstdint>
#include <forward_list>
#include <new>
#include <utility>

#include "context/context_stack.hpp"
#include "context/lease_users.hpp"
#include "context/tenant_identity.hpp"
#include "context/thread_state.hpp"
#include "driver/driver_table.hpp"
#include "observe/span.hpp"
#include "process/float_control.hpp"

namespace ctxbroker::detail {

// What a guard makes current. Two targets are the same when their generations are equal. Equal
// handles prove nothing, because the driver reuses handle values.
struct GuardTarget {
  const DriverTable* driver = nullptr;  // null: no driver is open, and the guard does nothing
  CUcontext context = nullptr;          // null: no context is to be current
  std::uint64_t generation = 0;         // 0 exactly when `context` is null
  // Of the lease, which may choose another context. If it is there, so are the three above.
  LeaseUsers* users = nullptr;
};

// Whose function runs inside, and where a breach is counted. The guard borrows it until it ends.
struct GuardedCall {
  const TenantIdentity* tenant = nullptr;         // null: the broker's own code
  std::atomic<std::uint64_t>* strikes = nullptr;  // the plug-in's own count, or null
  const char* function = "";                      // static text: "process"
  // Whether this is a call into a plug-in. When such a call ends, the broker checks the thread even
  // if the guard is nested, and notices contexts that calls around the gate have taken away.
  bool calls_plugin = true;
  const char* plugin = nullptr;  // the plug-in's short name, if one is meant
  // For RunningNote, of lasting(): the plug-in's id, and its library's file.
  const char* plugin_id = nullptr;
  const char* library = nullptr;
};

// The end of a frame that its thread has not left itself.
enum class FrameEnd : std::uint8_t {
  none,
  abandoned,    // the host, on another thread or too early: the frame's thread leaves it
  thread_gone,  // its thread has ended: whoever ends the guard leaves it
};

// One entry of the thread's list of guards. It lives on the stack, or in a GuardFrame.
struct Frame {
  enum class Way : std::uint8_t {
    nothing,  // there is no driver, or entering failed: there is nothing to undo
    host,     // a call from a plug-in back into the host
    nested,   // the context was current already: nothing was pushed
    pushed,   // the context was pushed
  };

  // A lease that the gate made current inside, because code of its tenant asked for the primary
  // context. The thread stays in it until the guard ends, so that no lease ends under it.
  struct TranslatedLease {
    LeaseSlot* slot = nullptr;
    std::uint64_t generation = 0;
    bool is_next = false;  // it came after the frame's own lease was lost
  };

  // What only some frames need. No destructor runs: `restore` empties the lists.
  struct Extras {
    CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;  // the thread's own
    bool relaxed = false;  // somebody else's capture is open on the thread: see OpenCaptures
    TakenContexts taken;   // the thread's own contexts, until the guard ends
    std::forward_list<TranslatedLease> translated;
    // A stream's capture was begun inside. The driver refuses many calls of a thread with an open
    // capture, so the guard ends what is left: see OpenCaptures.
    bool captures = false;
  };

  Frame() noexcept = default;
  Frame(const GuardTarget& where, const GuardedCall& call) noexcept
      : calls_plugin(call.calls_plugin),
        target(where),
        tenant(call.tenant),
        function(call.function),
        strikes(call.strikes),
        floats(FloatControl::OfThisThread()) {}
  // Of a thread without guards, on which this context was pushed in this slot.
  Frame(const GuardTarget& where, const GuardedCall& call, CUcontext pushed, LeaseSlot* in,
        const ThreadState& thread) noexcept
      : way(Way::pushed),
        calls_plugin(call.calls_plugin),
        undisturbed(true),
        looks_below(call.calls_plugin && call.tenant != nullptr && thread.outside != nullptr),
        changes(thread.changes),
        target{where.driver, pushed, where.generation, where.users},
        tenant(call.tenant),
        function(call.function),
        strikes(call.strikes),
        under(thread.outside),
        slot(in),
        floats(FloatControl::OfThisThread()) {}

  // Constructs the extras at the first call.
  Extras& extras() noexcept {
    if (!has_extras) new (extras_storage) Extras;
    has_extras = true;
    return *std::launder(reinterpret_cast<Extras*>(extras_storage));
  }

  Way way = Way::nothing;
  bool calls_plugin = false;
  // Whether the context was pushed on top of the thread's own, and nothing has happened since that
  // has to be checked when the guard ends.
  bool undisturbed = false;
  // Whether its end looks for `under`, too: a plug-in's call has run above a context of the
  // thread's own.
  bool looks_below = false;
  bool has_extras = false;
  bool is_hosts = false;        // it is a GuardFrame's
  bool changes_floats = false;  // a call back into the host has other ones than the plug-in
  std::atomic<FrameEnd> end{FrameEnd::none};
  std::uint64_t changes = 0;  // the thread's, when it entered; 0: the gate is not in force
  Frame* outer = nullptr;
  GuardTarget target;  // `context` is the one that was made current
  const TenantIdentity* tenant = nullptr;
  const char* function = "";
  std::atomic<std::uint64_t>* strikes = nullptr;
  CUcontext under = nullptr;  // the thread's own context, below the target; not in `taken`
  LeaseSlot* slot = nullptr;  // of target.users
  // The thread's, when it entered. Of a call back into the host: the plug-in's, if it differs from
  // the host's.
  FloatControl floats;
  std::uint64_t observed_from = 0;  // ns; 0: no timeline was recorded
  alignas(Extras) unsigned char extras_storage[sizeof(Extras)];
};

// The one pair under every guard. enter constructs the frame, whatever its status. The frame must
// live until leave, and the frames of a thread nest. After leave the thread's context stack,
// stream-capture mode and floating-point control are what they were before enter, or a record says
// that the driver refused. Neither throws. Neither allocates or takes a lock, except when the lease
// makes room for more threads than ever before, or the thread has more contexts than a frame has
// room for.
inline CUresult enter(Frame* frame, const GuardTarget& target, const GuardedCall& call) noexcept;
void leave(Frame& frame) noexcept;

// Returns whether a context can be pushed on top of what the thread has: the thread is in no guard,
// and is known to have at most one context.
inline bool can_push_on_top(const DriverTable& driver) noexcept {
  const ThreadState& thread = thread_state;
  return thread.innermost == nullptr && thread.known_at == thread.changes &&
         driver.current_is_watched;
}

// The general case of enter: nested guards, threads with contexts of their own, a lease's first
// threads, a timeline. The call comes in parts, so that the usual case need not store it.
[[gnu::cold]] CUresult enter_any(Frame* frame, const GuardTarget& target,
                                 const TenantIdentity* tenant, std::atomic<std::uint64_t>* strikes,
                                 const char* function, bool calls_plugin) noexcept;

// Pushes a context, in a slot of the target's users or without one. The frame is written last, when
// all of it is known.
inline CUresult push_on_top(Frame* frame, const GuardTarget& target, const GuardedCall& call,
                            CUcontext context, LeaseSlot* slot) noexcept {
  const CUresult status = target.driver->ctx_push(context);
  if (status == CUDA_SUCCESS) [[likely]] {
    ThreadState& thread = thread_state;
    thread.innermost = new (frame) Frame(target, call, context, slot, thread);
    return CUDA_SUCCESS;
  }
  if (slot != nullptr) LeaseUsers::leave(*slot);
  new (frame) Frame(target, call);
  return status;
}

CUresult enter(Frame* frame, const GuardTarget& target, const GuardedCall& call) noexcept {
  if (target.users != nullptr && can_push_on_top(*target.driver) && !timeline_observed())
      [[likely]] {
    LeaseSlot* const slot = target.users->enter_again();
    if (slot != nullptr) [[likely]]
      return push_on_top(frame, target, call, slot->context, slot);
  }
  return enter_any(frame, target, call.tenant, call.strikes, call.function, call.calls_plugin);
}

// The thread leaves the innermost frames that were abandoned. Called before anything that depends
// on the frames, so that the thread is as the host believes it to be.
[[gnu::cold]] void leave_abandoned_frames() noexcept;
inline void leave_abandoned() noexcept {
  const Frame* const frame = thread_state.innermost;
  if (frame != nullptr && frame->end.load(std::memory_order_acquire) != FrameEnd::none) [[unlikely]]
    leave_abandoned_frames();
}

// Gives back what others may wait for, and makes no driver call: the frame's thread has ended.
void leave_without_thread(Frame& frame) noexcept;

// The same list, for calls from a plug-in back into the host. Makes no driver call, unless the
// plug-in has a capture open. The host computes with the floating-point control with which it
// called the plug-in.
void enter_host(Frame& frame) noexcept;

// The gate calls this before each call that may change what is current on the thread, or the
// stream-capture mode. It takes the thread's own context out of reach of the code inside a guard.
void current_may_have_changed() noexcept;

// Code inside `frame` asked for the primary context, and the gate gives it its own lease instead:
// enters that lease until the frame is left. Fills in the context for this thread.
CUresult enter_translated(Frame& frame, LeaseUsers& users, std::uint64_t generation,
                          CUcontext* context) noexcept;

// The gate reports a stream capture that code inside this thread's guards has begun.
void stream_capture_begun(CUstream stream, CUcontext context) noexcept;

// Returns whether no call through the gate has changed the thread since the frame was entered.
// Always false without the gate.
inline bool is_untouched(const Frame& frame) noexcept {
  return frame.changes == thread_state.changes;
}

// Returns whether the frame is in this generation of a lease and its context is still current. Asks
// the driver only when something has changed the thread, or without the gate.
inline bool is_still_in(const Frame& frame, std::uint64_t generation) noexcept {
  if (frame.target.generation != generation) return false;
  if (is_untouched(frame)) return true;
  CUcontext current = nullptr;
  return frame.target.driver->ctx_get_current(&current) == CUDA_SUCCESS &&
         current == frame.target.context;
}

// Returns whether the thread's innermost guard is this tenant's and in this generation of a lease.
inline bool is_inside(std::uint64_t generation, const TenantIdentity* tenant) noexcept {
  leave_abandoned();
  const Frame* const frame = thread_state.innermost;
  return frame != nullptr && frame->tenant == tenant && is_still_in(*frame, generation);
}

// Returns whether the thread is in no guard and is known to have just this context current.
inline bool is_known_to_be_current(CUcontext context) noexcept {
  const ThreadState& thread = thread_state;
  return thread.innermost == nullptr && thread.known_at == thread.changes &&
         thread.outside == context;
}

// Returns the innermost frame that pushed its context, or null when there is none or the host's own
// code runs. Calls through the gate are made in that frame.
inline Frame* pushed_frame() noexcept {
  Frame* frame = thread_state.innermost;
  while (frame != nullptr && frame->way == Frame::Way::nested) frame = frame->outer;
  return frame != nullptr && frame->way == Frame::Way::pushed ? frame : nullptr;
}

// Whose code runs on this thread, according to its frames.
struct FrameOwner {
  bool decided = false;                    // false: no frame tells
  const TenantIdentity* tenant = nullptr;  // null: the host
};
inline FrameOwner frame_owner() noexcept {
  leave_abandoned();
  for (const Frame* frame = thread_state.innermost; frame != nullptr; frame = frame->outer) {
    if (frame->way == Frame::Way::host) return {true, nullptr};
    if (frame->tenant != nullptr) {
      return {true, frame->tenant->id == host_tenant ? nullptr : frame->tenant};
    }
  }
  return {};
}

// Returns in whose name the thread calls the driver: the lasting_name of the innermost frame's
// tenant, also where its plug-in has called the host; "host" for the broker's own work; null
// outside of guards.
const char* running_owner() noexcept;
// Sets what running_owner returns outside of guards, for a thread that the broker has made. Null:
// nobody.
inline void work_for_owner(const char* owner) noexcept {
  thread_state.works_for = owner;
}

// Enters in the constructor and leaves in the destructor. After a failed enter the thread is
// unchanged, and status() says why.
class ContextGuard {
 public:
  explicit ContextGuard(const GuardTarget& target, const GuardedCall& call = {}) noexcept
      : status_(enter(&frame_, target, call)) {}
  ~ContextGuard() { leave(frame_); }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

  CUresult status() const noexcept { return status_; }

 private:
  union {
    Frame frame_;  // which enter constructs
  };
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

// Runs `work`, which returns a CUresult, inside the target. Returns its status, or the guard's
// status when entering fails.
template <typename Work>
CUresult guarded(const GuardTarget& target, const GuardedCall& call, Work&& work) {
  const ContextGuard guard(target, call);
  return guard.status() == CUDA_SUCCESS ? std::forward<Work>(work)() : guard.status();
}

// Does the same for work that gives something back. It tries once more to enter the context,
// because what is given back would be lost otherwise. `work` runs at most once.
template <typename Work>
CUresult guarded_end(const GuardTarget& target, Work&& work) {
  {
    const ContextGuard guard(target);
    if (guard.status() == CUDA_SUCCESS) return work();
  }
  return guarded(target, {}, std::forward<Work>(work));
}

}  // namespace ctxbroker::detail
