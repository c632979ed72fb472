// SPDX-License-Identifier: Apache-2.0
#include "support/lock_count.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>

namespace ctxbroker::bench {
namespace {

constinit thread_local std::uint64_t locks = 0;

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool locks_are_counted() noexcept {
  return false;
}
#else
bool locks_are_counted() noexcept {
  return true;
}

void count_lock() noexcept {
  ++locks;
}
#endif

std::uint64_t locks_of_this_thread() noexcept {
  return locks;
}

}  // namespace ctxbroker::bench

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" __attribute__((visibility("default"))) int pthread_mutex_lock(
    pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static constinit std::atomic<Lock> real{nullptr};
  Lock lock = real.load(std::memory_order_relaxed);
  if (lock == nullptr) {
    lock = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    if (lock == nullptr) std::abort();
    real.store(lock, std::memory_order_relaxed);
  }
  ctxbroker::bench::count_lock();
  return lock(mutex);
}
#endif
