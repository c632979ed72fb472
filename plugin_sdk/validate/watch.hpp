// SPDX-License-Identifier: Apache-2.0
// Counts what a thread does that a real-time thread must not do: heap, locks, waits. The validator
// has its own malloc and lock functions, which everything in its process calls.
#pragma once

#include <cstdint>

namespace ctxbroker::validate {

struct Watched {
  std::uint64_t allocations = 0;  // calls of malloc, free and their like
  std::uint64_t locks = 0;        // mutexes and read-write locks
  std::uint64_t waits = 0;        // how often the thread gave its processor up
};

// Whether this build can count: not under a sanitizer, which has a heap of its own.
bool can_watch() noexcept;

// Counts for the calling thread, from its beginning to its end. Does not nest.
class Watch {
 public:
  Watch() noexcept;
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  Watched count() const noexcept;
};

// Inside, nothing is counted: the code is not the plug-in's.
class Unwatched {
 public:
  Unwatched() noexcept;
  ~Unwatched();
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;

 private:
  bool was_on_;
  std::uint64_t switches_;
};

}  // namespace ctxbroker::validate
