// SPDX-License-Identifier: Apache-2.0
#include "watch.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdlib>

namespace ctxbroker::validate {
namespace {

struct State {
  bool on = false;
  Watched seen;
  std::uint64_t switches = 0;  // of the thread when watching began, without the unwatched ones
};
// Touched by malloc, so nothing that allocates may stand behind it.
[[gnu::tls_model("initial-exec")]] thread_local State state;

std::uint64_t switches_now() noexcept {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_nvcsw);
}

#ifndef CTXB_SANITIZED
void count_allocation() noexcept {
  if (state.on) ++state.seen.allocations;
}

template <typename Function>
Function* next(const char* name) noexcept {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#endif

}  // namespace

bool can_watch() noexcept {
#ifdef CTXB_SANITIZED
  return false;
#else
  return true;
#endif
}

Watch::Watch() noexcept {
  state.seen = {};
  state.switches = switches_now();
  state.on = true;
}

Watch::~Watch() {
  state.on = false;
}

Watched Watch::count() const noexcept {
  Watched seen = state.seen;
  seen.waits = switches_now() - state.switches;
  return seen;
}

Unwatched::Unwatched() noexcept : was_on_(state.on), switches_(was_on_ ? switches_now() : 0) {
  state.on = false;
}

Unwatched::~Unwatched() {
  if (was_on_) state.switches += switches_now() - switches_;
  state.on = was_on_;
}

}  // namespace ctxbroker::validate

#ifndef CTXB_SANITIZED
// Visible for the plug-in's code. __libc_ names are the C library's own for the same functions.
#pragma GCC visibility push(default)
extern "C" {
// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier)
void* __libc_malloc(std::size_t bytes);
void __libc_free(void* memory);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)

void* malloc(std::size_t bytes) {
  ctxbroker::validate::count_allocation();
  return __libc_malloc(bytes);
}
void free(void* memory) {
  if (memory != nullptr) ctxbroker::validate::count_allocation();
  __libc_free(memory);
}
void* calloc(std::size_t count, std::size_t bytes) {
  ctxbroker::validate::count_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) {
  ctxbroker::validate::count_allocation();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  ctxbroker::validate::count_allocation();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  ctxbroker::validate::count_allocation();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  ctxbroker::validate::count_allocation();
  void* const made = __libc_memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *memory = made;
  return 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = ctxbroker::validate::next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  if (ctxbroker::validate::state.on) ++ctxbroker::validate::state.seen.locks;
  return real(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real =
      ctxbroker::validate::next<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  if (ctxbroker::validate::state.on) ++ctxbroker::validate::state.seen.locks;
  return real(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real =
      ctxbroker::validate::next<int(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  if (ctxbroker::validate::state.on) ++ctxbroker::validate::state.seen.locks;
  return real(lock);
}
}
#pragma GCC visibility pop
#endif
