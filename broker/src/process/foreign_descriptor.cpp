// SPDX-License-Identifier: Apache-2.0
#include "process/foreign_descriptor.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

#include "process/foreign_close.hpp"
#include "process/own_thread.hpp"

namespace ctxbroker::detail {

bool is_memory(int descriptor) noexcept {
  if (::fcntl(descriptor, F_GET_SEALS) >= 0) return true;
  // Without AT_STATX_DONT_SYNC, a file system may ask its server.
  struct statx about {};
  if (::statx(descriptor, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &about) != 0) return false;
  const mode_t type = about.stx_mode & S_IFMT;
  return type == S_IFCHR || type == 0;
}

Closer::~Closer() {
  for (Descriptor& one : waiting_) static_cast<void>(one.release());
  if (thread_.joinable()) thread_.detach();
}

void Closer::close(Descriptor descriptor) noexcept {
  if (descriptor.get() < 0) return;
  const std::lock_guard lock(mutex_);
  try {
    waiting_.reserve(waiting_.size() + 1);
  } catch (...) {
    static_cast<void>(descriptor.release());
    return;
  }
  waiting_.push_back(std::move(descriptor));
  if (runs_) return;
  if (thread_.joinable()) thread_.join();  // it needs no lock any more
  try {
    thread_ = start_own_thread([self = shared_from_this()] { self->run(); });
    runs_ = true;
  } catch (...) {  // NOLINT(bugprone-empty-catch): the next call tries again
  }
}

void Closer::run() noexcept {
  std::unique_lock lock(mutex_);
  while (!waiting_.empty()) {
    Descriptor one = std::move(waiting_.back());
    waiting_.pop_back();
    is_closing_ = true;
    lock.unlock();
    close_foreign(one.release());
    lock.lock();
    is_closing_ = false;
  }
  runs_ = false;
  idle_.notify_all();
}

std::size_t Closer::waiting() const noexcept {
  const std::lock_guard lock(mutex_);
  return waiting_.size() + (is_closing_ ? 1 : 0);
}

void Closer::wait(std::chrono::milliseconds time) noexcept {
  std::unique_lock lock(mutex_);
  if (!idle_.wait_for(lock, time, [&] { return !runs_; }) || !thread_.joinable()) return;
  std::thread done = std::move(thread_);
  lock.unlock();
  done.join();
}

}  // namespace ctxbroker::detail
