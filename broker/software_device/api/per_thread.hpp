// SPDX-License-Identifier: Apache-2.0
// A value that each thread has for itself.
#pragma once

namespace ctxbroker::software {

// The calling thread's T (a type per use), made at its first use and ended with the thread. A
// process's static objects end after the main thread's thread_local ones and may still call the
// driver: they get a new T, which is left to the process's end.
template <class T>
T& per_thread() {
  thread_local constinit T* value = nullptr;  // no destructor, so it can be read until the end
  struct Owner {
    ~Owner() {
      delete value;
      value = nullptr;
    }
  };
  if (value == nullptr) {
    thread_local Owner owner;
    static_cast<void>(owner);
    value = new T();
  }
  // NOLINTNEXTLINE(clang-analyzer-core.uninitialized.UndefReturn): it ends `owner` with the block
  return *value;
}

}  // namespace ctxbroker::software
