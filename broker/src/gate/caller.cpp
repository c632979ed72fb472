#include "gate/caller.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "context/guard.hpp"
#include "gate/code_map.hpp"

namespace ctxbroker::detail {
namespace {

constexpr int most_frames = 64;  // looked at, from the call outwards

// Whose thread this is, once known, and the address in that tenant's code that tells it. Nothing
// here has a destructor: plug-ins call until a thread has ended.
constinit thread_local GatedTenant* thread_owner = nullptr;
constinit thread_local const void* thread_code = nullptr;
// Of this thread's own stack; null: not asked yet.
constinit thread_local const std::uintptr_t* stack_begin = nullptr;
constinit thread_local const std::uintptr_t* stack_end = nullptr;

// Only so much of a stack is looked at, outwards from the call.
constexpr std::size_t most_stack_words = std::size_t{256} << 7;  // 256 KiB

// Where the C library keeps the function that a thread was started with, as it tells debuggers;
// 0: it does not say. Asked for once, because looking a name up takes the loader's lock, which a
// thread may be waited for under.
constinit std::atomic<std::size_t> start_routine_offset{0};

// A thread that calls the driver as its last deed has no other trace of its code on the stack.
const void* start_of_this_thread() noexcept {
  const std::size_t offset = start_routine_offset.load(std::memory_order_relaxed);
  if (offset == 0) return nullptr;
  const auto descriptor = static_cast<std::uintptr_t>(pthread_self());
  return *reinterpret_cast<void* const*>(descriptor + offset);
}

void take_thread(GatedTenant* tenant, const void* code) noexcept {
  thread_owner = tenant;
  thread_code = tenant != nullptr ? code : nullptr;
}

// Code that stays in the process may get another tenant, and a thread of that code with it.
void follow_heir() noexcept {
  if (thread_owner->is_open()) return;
  GatedTenant* const heir = owner_of_code(thread_code).tenant;
  if (heir == nullptr || heir == thread_owner) return;
  thread_owner = heir;
  lead_to_own_lease(*heir);
}

void find_stack() noexcept {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
  void* lowest = nullptr;
  std::size_t bytes = 0;
  if (pthread_attr_getstack(&attributes, &lowest, &bytes) == 0) {
    stack_begin = static_cast<const std::uintptr_t*>(lowest);
    stack_end = stack_begin + bytes / sizeof *stack_begin;
  }
  pthread_attr_destroy(&attributes);
}

// False: no return address into a tenant's code lies on this thread's stack.
bool tenants_may_be_calling() noexcept {
  const auto* const here = static_cast<const std::uintptr_t*>(__builtin_frame_address(0));
  // On a stack that is not the thread's own (a fibre's, a signal handler's) nothing is known.
  if (stack_end == nullptr || here < stack_begin || here >= stack_end) return true;
  const auto words = static_cast<std::size_t>(stack_end - here);
  return may_point_into_tenants(here, here + std::min(words, most_stack_words));
}

struct Walk {
  int frames = 0;
  GatedTenant* innermost = nullptr;  // the first tenant met
  GatedTenant* starter = nullptr;    // the last one, when only the thread's start is outside of it
  const void* start = nullptr;       // where in its code
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* state) {
  auto& walk = *static_cast<Walk*>(state);
  if (++walk.frames > most_frames) return _URC_END_OF_STACK;
  const auto address = static_cast<std::uintptr_t>(_Unwind_GetIP(context));
  if (address == 0) return _URC_END_OF_STACK;
  // A return address may be the first byte behind a function that does not return.
  const void* const code = reinterpret_cast<const void*>(address - 1);
  const CodeOwner owner = owner_of_code(code);
  if (owner.tenant != nullptr) {
    if (walk.innermost == nullptr) walk.innermost = owner.tenant;
    walk.starter = owner.tenant;
    walk.start = code;
  } else if (!owner.starts_threads) {
    walk.starter = nullptr;
  }
  return _URC_NO_REASON;
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
  if (thread_owner == nullptr && stack_end == nullptr) {  // the thread's first call
    find_stack();
    const void* const start = start_of_this_thread();
    if (start != nullptr) take_thread(owner_of_code(start).tenant, start);
  }
  if (thread_owner != nullptr) {
    follow_heir();
    return {thread_owner, false};
  }
  if (!tenants_may_be_calling()) return {};
  Walk walk;
  _Unwind_Backtrace(visit, &walk);
  if (walk.frames <= most_frames) take_thread(walk.starter, walk.start);
  return {walk.innermost, false};
}

}  // namespace ctxbroker::detail
