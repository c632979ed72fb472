// SPDX-License-Identifier: Apache-2.0
#include "gate/caller.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "context/guard.hpp"
#include "gate/code_map.hpp"
#include "gate/common_libraries.hpp"
#include "gate/tenant_code.hpp"
#include "gate/thread_object.hpp"

namespace ctxbroker::detail {
namespace {

constexpr int most_frames = 1024;  // looked at, from the call outwards

// The decisions about a thread, from its first call on. Nothing here has a destructor, because
// plug-ins call until a thread has ended.
struct Thread {
  bool is_decided = false;
  std::uint64_t owners = 0;       // owners_of_code(), from which that was decided
  GatedTenant* owner = nullptr;   // null: the host, but for calls of tenants' code
  std::uint64_t opening = 0;      // of the owner, that the thread has seen
  GatedTenant* latest = nullptr;  // whose lease is current, as far as the gate knows
  const std::uintptr_t* stack_begin = nullptr;
  const std::uintptr_t* stack_end = nullptr;  // null: not known
};
constinit thread_local Thread thread;

// How much of a stack is looked at, outwards from the call.
constexpr std::size_t most_stack_words = std::size_t{1024} << 7;  // 1 MiB

// Where the C library keeps the function that a thread was started with, as it tells debuggers. 0:
// it does not say. This is asked for once, because a look-up takes the loader's lock, and somebody
// who holds that lock may be waiting for the thread.
constinit std::atomic<std::size_t> start_routine_offset{0};

// A thread that calls the driver in a tail call has no other trace of its code on the stack.
struct ThreadStart {
  bool is_known = false;
  const void* function = nullptr;  // null: it is the main thread
  std::uintptr_t argument = 0;
};
ThreadStart start_of_this_thread() noexcept {
  const std::size_t offset = start_routine_offset.load(std::memory_order_relaxed);
  if (offset == 0) return {};
  const auto* const start =
      reinterpret_cast<const std::uintptr_t*>(static_cast<std::uintptr_t>(pthread_self()) + offset);
  return {true, reinterpret_cast<const void*>(start[0]), start[1]};
}

// std::thread starts a function of the C++ library with an object whose class, or whose function,
// is the code's that has made it. The object may be gone at the thread's end.
GatedTenant* owner_of(const ThreadObject& object) noexcept {
  const std::uintptr_t code = object.function != 0 ? object.function : object.its_class;
  return code != 0 ? owner_of_code(reinterpret_cast<const void*>(code)).tenant : nullptr;
}

void find_stack() noexcept {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* lowest = nullptr;
  std::size_t bytes = 0;
  if (pthread_attr_getstack(&attributes, &lowest, &bytes) == 0) {
    thread.stack_begin = static_cast<const std::uintptr_t*>(lowest);
    thread.stack_end = thread.stack_begin + bytes / sizeof *thread.stack_begin;
  }
  pthread_attr_destroy(&attributes);
}

// False: no return address into a tenant's code lies on this thread's stack.
bool tenants_may_be_calling() noexcept {
  const auto* const here = static_cast<const std::uintptr_t*>(__builtin_frame_address(0));
  // Nothing is known of a stack that is not the thread's own, such as a fibre's.
  if (here < thread.stack_begin || here >= thread.stack_end) return true;
  const auto words = static_cast<std::size_t>(thread.stack_end - here);
  return may_point_into_tenants(here, here + std::min(words, most_stack_words));
}

struct Walk {
  int frames = 0;
  GatedTenant* starter = nullptr;  // the last tenant met, if only the thread's start is outside
  bool is_at_start = false;        // the last frame is such code, at the beginning of the thread
};

bool is_on_stack(std::uintptr_t address) noexcept {
  const auto* const word = reinterpret_cast<const std::uintptr_t*>(address);
  return word >= thread.stack_begin && word < thread.stack_end;
}

// A return address may be the first byte behind a function that does not return.
const void* code_before(const void* return_address) noexcept {
  return static_cast<const char*>(return_address) - 1;
}
const void* code_of(_Unwind_Context* context) noexcept {
  const auto address = static_cast<std::uintptr_t>(_Unwind_GetIP(context));
  return address != 0 ? code_before(reinterpret_cast<const void*>(address)) : nullptr;
}

_Unwind_Reason_Code visit(_Unwind_Context* context, void* state) {
  auto& walk = *static_cast<Walk*>(state);
  if (++walk.frames > most_frames) return _URC_END_OF_STACK;
  const void* const code = code_of(context);
  if (code == nullptr) return _URC_END_OF_STACK;
  const CodeOwner owner = owner_of_code(code);
  if (owner.tenant != nullptr) {
    walk.starter = owner.tenant;
  } else if (!owner.starts_threads) {
    walk.starter = nullptr;
  }
  walk.is_at_start =
      owner.tenant == nullptr && owner.starts_threads && is_on_stack(_Unwind_GetCFA(context));
  return _URC_NO_REASON;
}

// The tenant in whose code the thread began, with nobody else's code on its stack; null: it is
// none.
GatedTenant* starter_of_stack() noexcept {
  Walk walk;
  if (tenants_may_be_calling()) _Unwind_Backtrace(visit, &walk);
  // Unwinding ends early on a stack of a fibre's own, and in code without tables for it.
  return walk.frames <= most_frames && walk.is_at_start ? walk.starter : nullptr;
}

// The first tenant from the call outwards.
struct Innermost {
  GatedTenant* tenant = nullptr;  // null: there is none
  bool is_sure = true;            // the map knows all code up to there
  int frames = 0;
};

_Unwind_Reason_Code visit_innermost(_Unwind_Context* context, void* state) {
  auto& innermost = *static_cast<Innermost*>(state);
  if (++innermost.frames > most_frames) return _URC_END_OF_STACK;
  const void* const code = code_of(context);
  if (code == nullptr) return _URC_END_OF_STACK;
  const RunningCode running = running_code(code);
  innermost.tenant = running.is_known ? running.owner.tenant : owner_of_code(code).tenant;
  innermost.is_sure = innermost.is_sure && running.is_known;
  return innermost.tenant != nullptr ? _URC_END_OF_STACK : _URC_NO_REASON;
}

Innermost find_innermost() noexcept {
  // Most calls return to the tenant's code directly.
  if (const void* const from = thread_state.called_from) {
    const RunningCode running = running_code(code_before(from));
    if (running.owner.tenant != nullptr) return {running.owner.tenant};
  }
  Innermost innermost;
  if (tenants_may_be_calling()) _Unwind_Backtrace(visit_innermost, &innermost);
  return innermost;
}

// The thread is the tenant's in whose code it started. Where the C++ library started it, the object
// that it got tells that, or else the outermost caller. At the thread's end, when the object is
// gone, it stays whose it was. The main thread is the host's.
void decide_thread() noexcept {
  if (thread.stack_end == nullptr) find_stack();
  thread.is_decided = true;
  thread.owners = owners_of_code();  // first: what changes meanwhile is decided again
  const ThreadStart start = start_of_this_thread();
  const CodeOwner code = start.is_known ? owner_of_code(start.function) : CodeOwner{nullptr, true};
  GatedTenant* owner = code.tenant;
  if (code.starts_threads) {
    const ThreadObject object = read_thread_object(start.argument, is_code_that_calls_for_others);
    owner = owner_of(object);
    if (owner == nullptr) owner = starter_of_stack();
    const bool is_ending = object.its_class == 0;
    if (owner == nullptr && is_ending && thread.owner != nullptr && has_code(*thread.owner)) return;
  }
  if (owner != nullptr && owner != thread.owner) thread.opening = owner->openings();
  thread.owner = owner;
}

// Nothing has changed since that was decided.
bool is_decided_now() noexcept {
  return thread.is_decided && thread.owners == owners_of_code();
}

// Another tenant may have adopted the thread's code since its last call.
void follow_opening() noexcept {
  const std::uint64_t opening = thread.owner->openings();
  if (opening == thread.opening) return;
  thread.opening = opening;
  lead_to_own_lease(thread.owner->main());
}

// Two libraries of a program may take turns on one thread. Each of them finds its own lease.
[[gnu::cold]] void take_turn(GatedTenant& tenant) noexcept {
  if (thread.latest != nullptr) thread_state.several_tenants = true;
  if (lead_out_of_neighbours_lease(tenant)) thread.latest = &tenant;
}

Caller call_of(GatedTenant& tenant) noexcept {
  GatedTenant& main = tenant.main();
  if (thread.latest != &main) take_turn(main);
  return {&main, false};
}

// Code of another tenant that calls the driver itself on a thread of this one. Null: there is none.
GatedTenant* visitor() noexcept {
  if (thread_state.called_from == nullptr) return nullptr;
  const void* const code = code_before(thread_state.called_from);
  RunningCode running = running_code(code);
  if (!running.is_known) {
    look_for_claimed_code();
    running = running_code(code);
  }
  GatedTenant* const calling = running.owner.tenant;
  return calling != nullptr && !calling->stands_with(*thread.owner) ? calling : nullptr;
}

}  // namespace

void learn_of_threads() noexcept {
  struct Field {
    std::uint32_t bits, count, offset;
  };
  const auto* field =
      static_cast<const Field*>(dlsym(RTLD_DEFAULT, "_thread_db_pthread_start_routine"));
  if (field != nullptr && field->bits == 8 * sizeof(void*)) start_routine_offset = field->offset;
}

Caller calling_on_a_bare_thread() noexcept {
  std::optional<Innermost> innermost;
  if (is_decided_now() && thread.owner == nullptr) {
    innermost = find_innermost();
    if (innermost->tenant != nullptr && innermost->is_sure) return call_of(*innermost->tenant);
  }
  // Nobody else tells of libraries that the program itself opens and closes.
  if (thread.owner == nullptr) look_for_claimed_code();
  if (!is_decided_now()) {
    decide_thread();
    innermost.reset();
  }
  if (thread.owner != nullptr) {
    follow_opening();
    GatedTenant* const other = visitor();
    return call_of(other != nullptr ? *other : *thread.owner);
  }
  if (!innermost) innermost = find_innermost();
  return innermost->tenant != nullptr ? call_of(*innermost->tenant) : Caller{};
}

bool is_nobodys(const Caller& caller, const GatedTenant& holder) {
  const void* const code = code_before(caller.from);
  const GatedTenant* const owner = owner_of_code(code).tenant;
  return owner != nullptr ? !owner->stands_with(holder) : !is_hosts_code(code);
}

bool is_nobodys(const Caller& caller) {
  return is_code_that_calls_for_others(code_before(caller.from));
}

}  // namespace ctxbroker::detail
