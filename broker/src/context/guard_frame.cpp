// SPDX-License-Identifier: Apache-2.0
#include "context/guard_frame.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <new>
#include <string>

#include "process/thread_end.hpp"

namespace ctxbroker::detail {
namespace {

std::uint64_t system_thread() noexcept {
  return static_cast<std::uint64_t>(::syscall(SYS_gettid));
}

// The driver has ended the thread's context stack, or is about to. So the frames are not left; only
// what others may wait for is given back.
void end_frames_of_thread(void*) noexcept {
  while (GuardFrame* const spare = thread_state.spare_guards) {
    thread_state.spare_guards = spare->next;
    delete spare;
  }
  Frame* frame = thread_state.innermost;
  thread_state.innermost = nullptr;
  while (frame != nullptr) {
    Frame* const outer = frame->outer;
    if (frame->is_hosts &&
        frame->end.exchange(FrameEnd::thread_gone, std::memory_order_acq_rel) != FrameEnd::none) {
      leave_without_thread(*frame);
      delete &guard_frame_of(*frame);
    }
    frame = outer;
  }
}

const ThreadEnd& frames_end() noexcept {
  static const ThreadEnd end(&end_frames_of_thread);
  return end;
}

void tell_host(const GuardFrame& guard) noexcept {
  const Frame& frame = guard.frame;
  const TenantIdentity& tenant = *frame.tenant;
  if (tenant.recorder == nullptr || !tenant.recorder->listening()) return;
  const std::uint64_t count = tenant.repeats.count("guard", "abandoned");
  if (!is_told(count)) return;
  try {
    const std::uint64_t here = system_thread();
    const std::string began = std::to_string(guard.thread);
    std::string text =
        "the guard \"" + std::string(frame.function) + "\" in the lease of " + tenant.name;
    text += here == guard.thread
                ? " ended before a guard that began inside it. The thread leaves the lease when "
                  "that one ends. End guards in reverse order"
                : " began on thread " + began + " and ended on thread " + std::to_string(here) +
                      ". Thread " + began +
                      " leaves the lease with its next guard, when it next changes its current "
                      "context, or when it ends. End a guard on the thread on which it began";
    tenant.recorder->record(Severity::error, host_tenant, "host", "guard",
                            text + repeats_text(count));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): then the line is lost
  }
}

}  // namespace

GuardFrame* make_guard_frame() noexcept {
  // Any value but null: the function finds the frames by itself.
  if (!frames_end().watch(&thread_state)) return nullptr;
  return new (std::nothrow) GuardFrame(system_thread());
}

Error no_guard_frame() {
  if (!frames_end().is_usable()) {
    return {ErrorKind::system_limit,
            "no guard can be made in this process: when the first one was made, all keys of "
            "pthread_key_create were taken; make a guard before the code that takes them, or load "
            "that code in a worker"};
  }
  return {ErrorKind::out_of_host_memory,
          "the process has no memory for a guard; free memory, or raise the process's limit"};
}

void leave_abandoned_frames() noexcept {
  for (Frame* frame = thread_state.innermost;
       frame != nullptr && frame->end.load(std::memory_order_acquire) != FrameEnd::none;
       frame = thread_state.innermost) {
    frame->floats = FloatControl(FloatControl::OfThisThread());  // the host's by now
    leave(*frame);
    give_back_guard_frame(guard_frame_of(*frame));
  }
}

void abandon_guard(GuardFrame& guard) noexcept {
  tell_host(guard);
  FrameEnd before = FrameEnd::none;
  if (guard.frame.end.compare_exchange_strong(before, FrameEnd::abandoned,
                                              std::memory_order_acq_rel)) {
    return;
  }
  leave_without_thread(guard.frame);
  delete &guard;
}

std::uint64_t number_this_thread() noexcept {
  // Global, because a number says which thread of the process it is.
  static constinit std::atomic<std::uint64_t> last{0};
  thread_state.number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return thread_state.number;
}

const char* running_owner() noexcept {
  const Frame* frame = thread_state.innermost;
  if (frame == nullptr) return thread_state.works_for;
  for (; frame != nullptr; frame = frame->outer) {
    if (frame->tenant != nullptr) return frame->tenant->lasting_name;
  }
  return "host";
}

}  // namespace ctxbroker::detail
