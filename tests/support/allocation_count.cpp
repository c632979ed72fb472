// SPDX-License-Identifier: Apache-2.0
#include "support/allocation_count.hpp"

#include <cerrno>
#include <cstddef>

namespace ctxbroker::bench {
namespace {

constinit thread_local std::uint64_t allocations = 0;

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool allocations_are_counted() noexcept {
  return false;
}
#else
bool allocations_are_counted() noexcept {
  return true;
}

void count_allocation() noexcept {
  ++allocations;
}
#endif

std::uint64_t allocations_of_this_thread() noexcept {
  return allocations;
}

}  // namespace ctxbroker::bench

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The C library's own, under the names that it keeps for programs that replace malloc. operator new
// calls malloc.
extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the C library's names
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

#define CTXB_VISIBLE __attribute__((visibility("default")))

CTXB_VISIBLE void* malloc(std::size_t bytes) {
  ctxbroker::bench::count_allocation();
  return __libc_malloc(bytes);
}

CTXB_VISIBLE void* calloc(std::size_t count, std::size_t bytes) {
  ctxbroker::bench::count_allocation();
  return __libc_calloc(count, bytes);
}

CTXB_VISIBLE void* realloc(void* block, std::size_t bytes) {
  ctxbroker::bench::count_allocation();
  return __libc_realloc(block, bytes);
}

CTXB_VISIBLE void* memalign(std::size_t alignment, std::size_t bytes) {
  ctxbroker::bench::count_allocation();
  return __libc_memalign(alignment, bytes);
}

CTXB_VISIBLE void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return memalign(alignment, bytes);
}

CTXB_VISIBLE int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  void* made = memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *block = made;
  return 0;
}
}
#endif
