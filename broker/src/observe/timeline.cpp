// SPDX-License-Identifier: Apache-2.0
#include "observe/timeline.hpp"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {
namespace {

// The operating system's number and name of a thread.
struct ThreadIdentity {
  std::uint64_t id = 0;
  std::array<char, 16> name{};  // ends with 0
};

ThreadIdentity this_thread_identity() noexcept {
  ThreadIdentity identity;
  identity.id = static_cast<std::uint64_t>(::syscall(SYS_gettid));
  ::pthread_getname_np(::pthread_self(), identity.name.data(), identity.name.size());
  return identity;
}

// The spans of one thread. Aligned so that two threads never write to one cache line.
struct alignas(sizeof(Span)) Chunk {
  static constexpr std::size_t room = 511;
  ThreadIdentity thread;
  std::uint32_t used = 0;
  alignas(sizeof(Span)) std::array<Span, room> spans{};
};

static_assert(sizeof(Chunk) == 64 << 10);

struct Pool {
  explicit Pool(std::size_t count) : chunks(count) {}
  std::vector<Chunk> chunks;
  std::uint64_t started = timeline_now();
  std::atomic<std::size_t> taken{0};  // chunks; may go beyond their number
  std::atomic<std::uint64_t> dropped{0};
};

// Everything global of the timeline.
//
// A thread that records is first counted as inside, then looks at the session; who stops first ends
// the session, then looks who is inside. Both in the one order of all seq_cst operations: either
// the thread sees that the session has ended, or the stopper sees the thread and waits for it.
constinit std::atomic<std::uint32_t> inside{0};
constinit std::atomic<std::uint32_t> session{0};  // 0: nothing records
// Of the last recording. Changes only while nothing records and nobody is inside. Never ended:
// threads record until the process ends.
constinit Pool* pool = nullptr;

// For those who start, stop and read; never taken in record_span.
constinit std::mutex keeping;
constinit std::uint32_t last_session = 0;

// Per thread. Nothing in it has a destructor, because guards record until the very end of a thread.
struct ThreadPlace {
  std::uint32_t session;
  Chunk* chunk;  // of that session; null when there was none left
};
constinit thread_local ThreadPlace thread_place{};

Chunk* take_chunk(Pool& from) noexcept {
  if (from.taken.load(std::memory_order_relaxed) >= from.chunks.size()) return nullptr;
  const std::size_t index = from.taken.fetch_add(1, std::memory_order_relaxed);
  if (index >= from.chunks.size()) return nullptr;
  Chunk& chunk = from.chunks[index];
  chunk.thread = this_thread_identity();
  return &chunk;
}

void append(ThreadPlace& place, std::uint32_t now, const Span& span) noexcept {
  if (place.session != now || (place.chunk != nullptr && place.chunk->used == Chunk::room)) {
    place.session = now;
    place.chunk = take_chunk(*pool);
  }
  if (span.begin < pool->started) return;  // begun before, perhaps in an earlier recording
  if (place.chunk == nullptr) {
    pool->dropped.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  place.chunk->spans[place.chunk->used++] = span;
}

bool outer_first(const Span& a, const Span& b) noexcept {
  return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
}

}  // namespace

void start_recording(std::size_t memory_bytes) {
  const std::lock_guard lock(keeping);
  if (session.load() != 0) {
    throw Error(ErrorKind::wrong_state, "the timeline is recorded already; stop it first");
  }
  const std::size_t chunks = memory_bytes / sizeof(Chunk);
  if (chunks == 0) {
    throw Error(ErrorKind::invalid_argument,
                "the timeline's memory_bytes must be at least " + std::to_string(sizeof(Chunk)));
  }
  delete std::exchange(pool, nullptr);  // before the new one, so that there are never two
  try {
    pool = new Pool(chunks);
  } catch (const std::exception&) {  // std::bad_alloc, or more than a vector can ever hold
    throw Error(ErrorKind::invalid_argument,
                "the timeline's memory_bytes is " + std::to_string(memory_bytes) +
                    ", which this machine cannot allocate; ask for less");
  }
  if (++last_session == 0) ++last_session;
  session.store(last_session);
  observers.fetch_or(timeline_observes, std::memory_order_relaxed);
}

void stop_recording() noexcept {
  const std::lock_guard lock(keeping);
  observers.fetch_and(~timeline_observes, std::memory_order_relaxed);
  if (session.exchange(0) == 0) return;
  while (inside.load() != 0) std::this_thread::yield();
}

void record_span(const Span& span) noexcept {
  inside.fetch_add(1);
  const std::uint32_t now = session.load();
  if (now != 0) append(thread_place, now, span);
  inside.fetch_sub(1);
}

Recording recorded() {
  const std::lock_guard lock(keeping);
  if (session.load() != 0) {
    throw Error(ErrorKind::wrong_state, "the timeline is still recorded; stop it first");
  }
  if (pool == nullptr) {
    throw Error(ErrorKind::wrong_state, "no timeline was recorded; start it first");
  }
  const Pool& from = *pool;
  Recording recording{from.started, from.dropped.load(), {}};
  std::map<std::uint64_t, RecordedThread> threads;
  const std::size_t taken = std::min(from.taken.load(), from.chunks.size());
  for (std::size_t index = 0; index < taken; ++index) {
    const Chunk& chunk = from.chunks[index];
    RecordedThread& thread = threads[chunk.thread.id];
    thread.id = chunk.thread.id;
    thread.name = chunk.thread.name.data();
    thread.spans.insert(thread.spans.end(), chunk.spans.begin(), chunk.spans.begin() + chunk.used);
  }
  for (auto& [id, thread] : threads) {
    std::stable_sort(thread.spans.begin(), thread.spans.end(), outer_first);
    recording.threads.push_back(std::move(thread));
  }
  return recording;
}

}  // namespace ctxbroker::detail
