#include "plugin/failure_record.hpp"

#include <utility>

namespace ctxbroker::detail {

void FailureRecord::plugin_said(Failure failure) {
  const std::lock_guard lock(mutex_);
  both_.said = std::move(failure);
  recorded_.store(true, std::memory_order_release);
}

void FailureRecord::host_refused(Failure failure) {
  const std::lock_guard lock(mutex_);
  both_.refused = std::move(failure);
  recorded_.store(true, std::memory_order_release);
}

FailureRecord::Both FailureRecord::read() const {
  const std::lock_guard lock(mutex_);
  return both_;
}

void FailureRecord::clear() noexcept {
  if (!recorded_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  both_ = {};
  recorded_.store(false, std::memory_order_release);
}

}  // namespace ctxbroker::detail
