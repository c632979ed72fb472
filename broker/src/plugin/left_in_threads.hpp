// SPDX-License-Identifier: Apache-2.0
// Finds threads that lead into a library, and the keys of pthread_key_create whose destructors lie
// in it. Another C library than glibc does not say where it keeps them: then nothing is found.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <vector>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

enum class LeftThread : std::uint8_t {
  none,
  calls,    // it was started with a function of the library
  started,  // the library has started it
};
// A thread that nobody joins may be at its very end: it gets a moment. Any thread.
LeftThread find_lasting_thread(const Extent& code) noexcept;

// Stands around the end of a library: the keys whose destructors lie in code that is about to leave
// the process. Most libraries delete theirs then. Threads that end meanwhile skip these
// destructors. Any thread.
class LeavingKeys {
 public:
  // Gives threads that end a moment to come out of such a destructor. Throws std::bad_alloc.
  explicit LeavingKeys(const std::vector<Extent>& code);
  ~LeavingKeys();  // where the code is still there, its destructors are called again
  LeavingKeys(const LeavingKeys&) = delete;
  LeavingKeys& operator=(const LeavingKeys&) = delete;
  // A thread that ends may be in one of the destructors: the code has to stay.
  bool are_in_use() const noexcept { return are_in_use_; }
  // Deletes those that are left and whose code is gone. Returns how many there were.
  int delete_left() noexcept;

 private:
  struct Key {
    pthread_key_t key;
    std::uintptr_t sequence, destructor;
  };
  bool is_any_running() const noexcept;
  std::vector<Key> keys_;
  bool are_in_use_ = false;
};

}  // namespace ctxbroker::detail
