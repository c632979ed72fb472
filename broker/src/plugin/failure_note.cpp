#include "plugin/failure_note.hpp"

#include <utility>

namespace ctxbroker::detail {

void FailureNote::plugin_said(Failure failure) {
  const std::lock_guard lock(mutex_);
  both_.said = std::move(failure);
  noted_.store(true, std::memory_order_release);
}

void FailureNote::host_refused(Failure failure) {
  const std::lock_guard lock(mutex_);
  both_.refused = std::move(failure);
  noted_.store(true, std::memory_order_release);
}

FailureNote::Both FailureNote::read() const {
  const std::lock_guard lock(mutex_);
  return both_;
}

void FailureNote::clear() noexcept {
  if (!noted_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  both_ = {};
  noted_.store(false, std::memory_order_release);
}

}  // namespace ctxbroker::detail
