// SPDX-License-Identifier: Apache-2.0
#include "plugin/loader_turn.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unwind.h>
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "gate/loaded_objects.hpp"
#include "observe/lasting.hpp"
#include "process/maker.hpp"
#include "process/own_thread.hpp"

namespace ctxbroker::detail {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// How long a new thread may take until it runs on a busy machine.
constexpr std::chrono::seconds least_for_a_busy_machine{10};

// A question to the loader, on a thread of its own that may be left waiting. One is under way at a
// time. A forked process has none of the threads, and makes its own.
struct Probe {
  const Maker maker;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_under_way = false;
  bool is_asking = false;
  std::uint64_t answers = 0;
};

// Throws std::bad_alloc.
Probe& probe() {
  static std::atomic<Probe*> of_process{nullptr};  // never ended: its thread may still wait
  Probe* known = of_process.load(std::memory_order_acquire);
  while (known == nullptr || !known->maker.is_this_process()) {
    auto* const made = new Probe;
    if (of_process.compare_exchange_strong(known, made, std::memory_order_acq_rel)) {
      if (known != nullptr) keep_for_ever(known);  // a thread of the other process may have it
      return *made;
    }
    delete made;
  }
  return *known;
}

void ask_loader(Probe& asked) noexcept {
  {
    const std::lock_guard lock(asked.mutex);
    asked.is_asking = true;
  }
  asked.changed.notify_all();
  // Both take the loader's lock, whatever they find.
  if (void* const program = dlopen(nullptr, RTLD_LAZY | RTLD_NOLOAD)) dlclose(program);
  {
    const std::lock_guard lock(asked.mutex);
    asked.is_under_way = asked.is_asking = false;
    ++asked.answers;
  }
  asked.changed.notify_all();
}

// Returns whether the loader has answered within the limit. Where it cannot be asked, true.
bool answers(milliseconds limit) noexcept {
  try {
    Probe& asked = probe();
    std::unique_lock lock(asked.mutex);
    std::thread own;
    if (!asked.is_under_way) {
      own = start_own_thread([&asked] { ask_loader(asked); });
      asked.is_under_way = true;
    }
    const auto has_answered = [&asked, before = asked.answers] { return asked.answers != before; };
    asked.changed.wait_for(lock, least_for_a_busy_machine,
                           [&] { return asked.is_asking || has_answered(); });
    const bool is_free = asked.changed.wait_for(lock, limit, has_answered);
    lock.unlock();
    if (own.joinable()) is_free ? own.join() : own.detach();
    return is_free;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const std::system_error&) {  // no thread
    return true;
  }
}

// Another thread's turn may be waiting for the loader, too.
bool is_being_asked() {
  Probe& asked = probe();
  const std::lock_guard lock(asked.mutex);
  return asked.is_under_way;
}

struct LoaderSearch {
  Extent loader;
  bool is_found = false;
};

_Unwind_Reason_Code look_for_loader(_Unwind_Context* context, void* state) {
  auto& search = *static_cast<LoaderSearch*>(state);
  search.is_found = is_in(search.loader, static_cast<std::uintptr_t>(_Unwind_GetIP(context)));
  return search.is_found ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

// Returns whether this thread is in a constructor or destructor that the loader has called. The
// loader's lock is then this thread's, and another thread would wait for it.
bool is_called_by_loader() noexcept {
  LoaderSearch search{extent_at(reinterpret_cast<const void*>(_r_debug.r_ldbase))};
  if (search.loader.begin != 0) _Unwind_Backtrace(look_for_loader, &search);
  return search.is_found;
}

// Returns whether no other thread can have the loader.
bool is_only_thread() noexcept {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded != 0;
#else
  return false;
#endif
}

Turns& loader_turns() {
  static auto* const one = new Turns;  // never ended: used until the process ends
  return *one;
}

}  // namespace

LoaderTurn::LoaderTurn(const TenantIdentity& tenant, const std::filesystem::path& library,
                       const char* function, milliseconds limit)
    : limit_(limit),
      begin_(steady_clock::now()),
      turn_(loader_turns(), {tenant.lasting_name, lasting(library.native()), function}, limit),
      is_free_([&] {
        if (!turn_ || turn_.is_nested() || limit == milliseconds::zero()) return true;
        if (is_only_thread() || is_called_by_loader()) return true;
        const auto waited = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin_);
        return answers(std::max(limit - waited, milliseconds(1)));
      }()) {}

std::string LoaderTurn::why_not() const {
  const std::string wait = "after a wait of " + std::to_string(limit_.count()) + " ms";
  constexpr const char* one_thread = ", and the system's loader serves one thread at a time";
  if (turn_ || is_being_asked()) {
    return "another library's constructor or destructor keeps the system's loader " + wait +
           ", and the broker did not load that library" + one_thread;
  }
  const TurnUser& other = turn_.other();
  return "a " + std::string(other.function) + " of tenant " + other.tenant + "'s library \"" +
         other.owner + "\" still runs on another thread " + wait + one_thread;
}

}  // namespace ctxbroker::detail
