#include "context/thread_notes.hpp"

#include <pthread.h>

#include <mutex>

namespace ctxbroker::detail {

constinit thread_local ThreadNotes thread_notes;

namespace {

static_assert(own_shards == 32, "one bit each");
constinit std::atomic<std::uint32_t> shards_taken{0};
constinit std::atomic<std::uint32_t> last_shared{0};

// The notes of threads that have a shard of their own, for others to look at. Under a lock, for
// they go with their thread.
struct Register {
  std::mutex mutex;
  std::array<const ThreadNotes*, own_shards> notes{};
  bool kept = true;  // false: the library has ended, and threads end without a word
};
constinit Register all_notes;

void enter_in_register(std::uint32_t shard, const ThreadNotes* notes) noexcept {
  const std::lock_guard lock(all_notes.mutex);
  all_notes.notes[shard] = notes;
}

void share() noexcept {
  const std::uint32_t next = last_shared.fetch_add(1, std::memory_order_relaxed);
  thread_notes.number = own_shards + next % shared_shards + 1;
}

// The thread's last deed in its shard comes before the next owner's first.
void free_shard(std::uint32_t shard) noexcept {
  shards_taken.fetch_and(~(std::uint32_t{1} << shard), std::memory_order_release);
}

void give_back_shard(void* number) noexcept {
  const auto shard = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(number)) - 1;
  // What else ends with the thread may enter guards yet, or leave one.
  if (thread_notes.innermost.is_lean()) make_frame_of_lean_guard();
  share();
  thread_notes.sound_at = 0;  // `shard` is the next thread's
  enter_in_register(shard, nullptr);
  free_shard(shard);
}

// Not a thread_local object's destructor: the first of a thread takes the loader's lock, which a
// thread may be waited for under. Without the key (the library has ended, or the process has no
// more of them) a thread has no shard of its own.
struct EndOfThread {
  EndOfThread() noexcept : made(pthread_key_create(&key, give_back_shard) == 0) {}
  ~EndOfThread() {
    if (made) pthread_key_delete(key);
    made = false;
    const std::lock_guard lock(all_notes.mutex);
    all_notes.kept = false;
  }
  pthread_key_t key = 0;
  bool made;
};
EndOfThread end_of_thread;

bool tells_its_end(std::uint32_t shard) noexcept {
  return end_of_thread.made &&
         pthread_setspecific(end_of_thread.key,
                             reinterpret_cast<void*>(std::uintptr_t{shard} + 1)) == 0;
}

}  // namespace

std::uint32_t number_this_thread() noexcept {
  std::uint32_t taken = shards_taken.load(std::memory_order_relaxed);
  while (~taken != 0) {
    const auto free = static_cast<std::uint32_t>(__builtin_ctz(~taken));
    if (!shards_taken.compare_exchange_weak(taken, taken | std::uint32_t{1} << free,
                                            std::memory_order_acquire, std::memory_order_relaxed)) {
      continue;
    }
    if (!tells_its_end(free)) {
      free_shard(free);
      break;
    }
    enter_in_register(free, &thread_notes);
    thread_notes.number = free + 1;
    return thread_notes.number;
  }
  share();
  return thread_notes.number;
}

bool has_lean_guard(std::uint32_t shard, const OccupancyShard& in) noexcept {
  if (shard >= own_shards) return false;
  const std::lock_guard lock(all_notes.mutex);
  const ThreadNotes* const notes = all_notes.notes[shard];
  if (notes == nullptr) return false;
  if (!all_notes.kept && notes != &thread_notes) return true;
  return notes->innermost.is_seen_lean() && notes->shard.load(std::memory_order_relaxed) == &in;
}

}  // namespace ctxbroker::detail
