// What a guard costs where nothing has to be looked at: the gate watches, and knows the thread.
// Inline, for a call more would be a good part of it. guard.cpp has everything else.
#pragma once

#include "context/epoch.hpp"
#include "context/guard.hpp"
#include "context/thread_notes.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {

// Nothing that was seen has touched the thread since the frame was entered. Never true where nobody
// watches.
inline bool is_untouched(const Frame& frame) noexcept {
  return frame.seen == thread_notes.changes;
}

// The thread is in this life of the tenant's lease, and its innermost guard says so: one that looks
// at nothing when it ends need not be there at all. False where the driver would have to be asked.
inline bool is_surely_inside(std::uint64_t generation, const TenantIdentity* tenant) noexcept {
  const Innermost::Look innermost = thread_notes.innermost.look();
  if (innermost.none()) return false;
  if (innermost.is_lean()) [[unlikely]] {
    const GuardedPlace& place = *thread_notes.place;
    return place.target.generation == generation && place.tenant == tenant;
  }
  const Frame& frame = *innermost.frame();
  return is_untouched(frame) && frame.target.generation == generation && frame.tenant == tenant;
}

// The frame is in this life of a lease, and what it made current is current still. Asks the driver
// only where something touched the thread, or nobody watches.
inline bool is_still_in(const Frame& frame, std::uint64_t generation) noexcept {
  if (frame.target.generation != generation) return false;
  if (is_untouched(frame)) return true;
  CUcontext current = nullptr;
  return frame.target.driver->ctx_get_current(&current) == CUDA_SUCCESS &&
         current == frame.target.context;
}

// As is_surely_inside, of a thread that a frame stands on, with the driver's word.
inline bool is_inside_already(std::uint64_t generation, const TenantIdentity* tenant) noexcept {
  const Innermost::Look innermost = thread_notes.innermost.look();
  if (innermost.none() || innermost.is_lean()) return false;
  return innermost.frame()->tenant == tenant && is_still_in(*innermost.frame(), generation);
}

// In this life of any tenant's lease.
inline bool is_inside(std::uint64_t generation) noexcept {
  const Innermost::Look innermost = thread_notes.innermost.look();
  if (innermost.none()) return false;
  if (innermost.is_lean()) return thread_notes.place->target.generation == generation;
  return is_still_in(*innermost.frame(), generation);
}

// No guard stands on the thread, and this is known to be all that is current on it.
inline bool is_known_to_be_current(CUcontext context) noexcept {
  const ThreadNotes& thread = thread_notes;
  return thread.innermost.none() && thread.known_at == thread.changes && thread.outside == context;
}

// What is current on the thread is known, and no guard stands on it: the target can be pushed on
// top, for nothing that is seen gets at what is below.
inline bool is_known(const GuardTarget& target) noexcept {
  return thread_notes.innermost.none() && thread_notes.known_at == thread_notes.changes &&
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
  thread.innermost.set(&frame);
}

// What the thread has current under a frame is looked at once more when the frame has gone: code
// that gets past the gate may do away with its own, but not with the host's.
inline bool is_under(CUcontext own, const DriverTable& driver) noexcept {
  CUcontext current = nullptr;
  return driver.ctx_get_current(&current) == CUDA_SUCCESS && current == own;
}

// Whose lease a guard wants (its Tenant, tenant.hpp), and the epoch in which it was sound.
struct Wanted {
  void* tenant;
  int device;
  std::uint64_t sound_at;
};

// True when a lean guard was entered; `room` is for its frame, should anybody ask for one. The
// thread remembers the place: enter_lean_again. False: nothing was entered, and no place is known.
inline bool enter_lean(GuardRoom& room, const GuardedPlace& place, const Wanted& wanted) noexcept {
  OccupancyShard* const shard = place.target.occupancy->own_shard();
  if (shard == nullptr || !is_known(place.target)) return false;
  ThreadNotes& thread = thread_notes;
  thread.sound_at = 0;
  thread.shard.store(shard, std::memory_order_relaxed);
  thread.innermost.set_lean(room);
  // The other side of Occupancy's close and take_over, as in its enter.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  CUcontext const context = shard->context.load(std::memory_order_acquire);
  thread.tenant = wanted.tenant;
  thread.device = wanted.device;
  thread.place = &place;
  thread.context = context;
  thread.unmixed = thread.outside == nullptr ? context : reinterpret_cast<CUcontext>(&thread_notes);
  thread.push = place.target.driver->ctx_push;
  thread.pop = place.target.driver->ctx_pop;
  if (context == nullptr || thread.push(context) != CUDA_SUCCESS) {
    thread.innermost.clear();
    return false;
  }
  thread.sound_at = wanted.sound_at;
  return true;
}

// The thread's last lean guard was, or is, where this one wants to go.
inline bool is_where_it_was(const void* tenant, int device) noexcept {
  return thread_notes.tenant == tenant && thread_notes.device == device;
}
// And nothing of it has changed since.
inline bool is_right_there() noexcept {
  return thread_notes.sound_at == epoch.load(std::memory_order_acquire);
}

// In a guard of that tenant's lease, which was sound in that epoch: a lean one stands through the
// end of an epoch, and where it stands is right in the next one, too.
inline void stay_right(void* tenant, std::uint64_t sound_at) noexcept {
  ThreadNotes& thread = thread_notes;
  if (!thread.innermost.is_lean() || timeline_observed() || thread.sound_at == sound_at) return;
  thread.tenant = tenant;  // it may have moved meanwhile
  thread.sound_at = sound_at;
}

// The same as enter_lean, there, on a thread that no guard stands on. False: nothing was done, but
// that `room` is noted as the innermost guard's, from where the caller takes it away.
inline bool enter_lean_again(GuardRoom& room) noexcept {
  ThreadNotes& thread = thread_notes;
  thread.innermost.set_lean(room);
  // Whoever ends an epoch and waits for a barrier on all threads sees this, or is seen.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return is_right_there() && thread.push(thread.context) == CUDA_SUCCESS;
}

// After a lean guard's pop: that was all.
inline void note_lean_end() noexcept {
  thread_notes.shard.load(std::memory_order_relaxed)->count_lean_guard();
  thread_notes.innermost.clear();
}

// The end of a lean guard of which there is no frame: one pop, where nothing can have happened.
void leave_lean_and_look(CUresult popped, CUcontext left) noexcept;
inline void leave_lean() noexcept {
  CUcontext left;  // nothing where the pop fails
  const CUresult popped = thread_notes.pop(&left);
  if (popped != CUDA_SUCCESS) [[unlikely]]
    return leave_lean_and_look(popped, nullptr);
  if (left != thread_notes.unmixed) [[unlikely]]
    return leave_lean_and_look(popped, left);
  note_lean_end();
}

// The same for a frame. False: nothing was done.
inline bool leave_known(Frame& frame) noexcept {
  if (!frame.quick || !is_untouched(frame)) return false;
  CUcontext left = nullptr;
  const DriverTable& driver = *frame.target.driver;
  if (driver.ctx_pop(&left) != CUDA_SUCCESS) return false;
  if (left != frame.target.context || (frame.under != nullptr && !is_under(frame.under, driver))) {
    // By ways that the gate does not see: all is looked at.
    thread_notes.changed();
    put_back(driver, left);
    return false;
  }
  if (frame.target.occupancy != nullptr) frame.target.occupancy->leave(frame.seat);
  thread_notes.innermost.clear();
  return true;
}

}  // namespace ctxbroker::detail
