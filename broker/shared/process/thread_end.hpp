// SPDX-License-Identifier: Apache-2.0
// Calls a function when a thread ends.
#pragma once

#include <pthread.h>

namespace ctxbroker::detail {

// Takes the place of a thread_local object with a destructor. The C library registers those under
// the loader's lock, which another thread may hold for long: while it runs a library's constructor,
// which may even wait for this thread. A key needs no lock.
//
// Keep it in a static object that is never destroyed. The main thread's values stay if the process
// ends by exit.
class ThreadEnd {
 public:
  explicit ThreadEnd(void (*function)(void* value)) noexcept
      : is_usable_(pthread_key_create(&key_, function) == 0) {}

  // Calls the function with `value`, which is not null, when the calling thread ends. Returns false
  // when the system has no room for that.
  bool watch(const void* value) const noexcept {
    return is_usable_ && pthread_setspecific(key_, value) == 0;
  }

  // False: all keys of the process were taken when this one was asked for.
  bool is_usable() const noexcept { return is_usable_; }

 private:
  pthread_key_t key_{};
  bool is_usable_;
};

}  // namespace ctxbroker::detail
