#include "context/thread_notes.hpp"

#include <pthread.h>

namespace ctxbroker::detail {

constinit thread_local ThreadNotes thread_notes;

namespace {

static_assert(own_shards == 32, "one bit each");
constinit std::atomic<std::uint32_t> shards_taken{0};
constinit std::atomic<std::uint32_t> last_shared{0};

void share() noexcept {
  const std::uint32_t next = last_shared.fetch_add(1, std::memory_order_relaxed);
  thread_notes.number = own_shards + next % shared_shards + 1;
}

// The thread's last deed in its shard comes before the next owner's first.
void give_back_shard(void* number) noexcept {
  const auto shard = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(number)) - 1;
  // What else ends with the thread may enter guards yet, or leave one.
  share();
  if (thread_notes.lean != nullptr) make_frame_of_lean_guard();
  thread_notes.sound_at = 0;  // `shard` is the next thread's
  shards_taken.fetch_and(~(std::uint32_t{1} << shard), std::memory_order_release);
}

// Not a thread_local object's destructor: the first of a thread takes the loader's lock, which a
// thread may be waited for under. Without the key (the library has ended, or the process has no
// more of them) a shard is not used again.
struct EndOfThread {
  EndOfThread() noexcept : made(pthread_key_create(&key, give_back_shard) == 0) {}
  ~EndOfThread() {
    if (made) pthread_key_delete(key);
    made = false;
  }
  pthread_key_t key = 0;
  bool made;
};
EndOfThread end_of_thread;

}  // namespace

std::uint32_t number_this_thread() noexcept {
  std::uint32_t taken = shards_taken.load(std::memory_order_relaxed);
  while (~taken != 0) {
    const auto free = static_cast<std::uint32_t>(__builtin_ctz(~taken));
    if (!shards_taken.compare_exchange_weak(taken, taken | std::uint32_t{1} << free,
                                            std::memory_order_acquire, std::memory_order_relaxed)) {
      continue;
    }
    thread_notes.number = free + 1;
    if (end_of_thread.made) {
      pthread_setspecific(end_of_thread.key, reinterpret_cast<void*>(std::uintptr_t{free} + 1));
    }
    return thread_notes.number;
  }
  share();
  return thread_notes.number;
}

}  // namespace ctxbroker::detail
