// SPDX-License-Identifier: Apache-2.0
// Reads the object that std::thread of libstdc++ starts a thread with.
#pragma once

#include <cstdint>

namespace ctxbroker::detail {

struct ThreadObject {
  std::uintptr_t its_class = 0;  // where its virtual functions are listed; 0: the object is gone
  // The function that it calls, if that is one of several with the same class. The loader may bind
  // such a class to another library's copy of it, so the class does not tell whose the thread is.
  std::uintptr_t function = 0;
};

// The object is gone at the thread's end, and its memory may be in use for something else.
// `calls_for_others` says whether code is of a library that calls whatever function it is given: a
// function of such a library does not tell who has given it to the thread. Any thread.
ThreadObject read_thread_object(std::uintptr_t at, bool (*calls_for_others)(const void*)) noexcept;

}  // namespace ctxbroker::detail
