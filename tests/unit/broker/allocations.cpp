// SPDX-License-Identifier: Apache-2.0
// With sanitizers GCC sees through the operators below, which allocate with malloc on purpose.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#include "allocations.hpp"

#include <cstdlib>
#include <new>

namespace ctxbroker::test {
thread_local std::uint64_t allocations = 0, allocated_bytes = 0;
}  // namespace ctxbroker::test

// For the whole program.
void* operator new(std::size_t bytes) {
  ++ctxbroker::test::allocations;
  ctxbroker::test::allocated_bytes += bytes;
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++ctxbroker::test::allocations;
  ctxbroker::test::allocated_bytes += bytes;
  return std::malloc(bytes != 0 ? bytes : 1);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
