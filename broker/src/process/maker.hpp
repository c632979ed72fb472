// SPDX-License-Identifier: Apache-2.0
// The process that made an object. A process that it forks has a copy of the object, but neither
// its threads nor the right to end what it stands for: other processes, files, work on the device.
// The locks in the copy may be held by threads that only the first process has.
#pragma once

#include <unistd.h>

#include <memory>
#include <utility>

namespace ctxbroker::detail {

class Maker {
 public:
  Maker() noexcept : id_(::getpid()) {}
  bool is_this_process() const noexcept { return id_ == ::getpid(); }

 private:
  const pid_t id_;
};

// Keeps an object until the process ends, where a leak checker finds it.
void keep_for_ever(void* object) noexcept;

// The deleter of an object that a forked process leaves alone.
template <typename T>
struct MakersDelete {
  Maker maker;
  void operator()(T* object) const noexcept {
    maker.is_this_process() ? delete object : keep_for_ever(object);
  }
};

// Does what std::make_shared does, with that deleter.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_shared_by_maker(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), MakersDelete<T>{});
}

}  // namespace ctxbroker::detail
