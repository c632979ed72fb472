// SPDX-License-Identifier: Apache-2.0
// A value that each thread has for itself.
#pragma once

#include <memory>
#include <new>

#include "process/thread_end.hpp"

namespace ctxbroker::software {

// The calling thread's T (a type per use), made at its first use and ended with the thread. Code
// that calls the driver after that gets a new T. What the main thread has when the process ends is
// left to the system.
template <class T>
T& per_thread() {
  thread_local constinit T* value = nullptr;
  static const ctxbroker::detail::ThreadEnd thread_end([](void* ended) {
    value = nullptr;
    delete static_cast<T*>(ended);
  });
  if (value == nullptr) {
    auto made = std::make_unique<T>();
    if (!thread_end.watch(made.get())) throw std::bad_alloc();
    value = made.release();
  }
  return *value;
}

}  // namespace ctxbroker::software
