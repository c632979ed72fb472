// SPDX-License-Identifier: Apache-2.0
// Records why the plug-in function that runs now is about to fail: what the plug-in reported, and
// what the host refused.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

struct Failure {
  ctxb_status status = CTXB_OK;
  int driver_status = 0;  // CUresult
  std::string text;
};

// Any thread may use it. `clear` costs one load while nothing is recorded.
class FailureRecord {
 public:
  void plugin_said(Failure failure) { record(both_.said, std::move(failure)); }
  // After a loss every call is refused: the first one says why, and those that clean up do not.
  void host_refused(Failure failure) {
    const bool is_known_loss =
        failure.status == CTXB_ERROR_CONTEXT_LOST && read().refused.status == failure.status;
    if (!is_known_loss) record(both_.refused, std::move(failure));
  }

  struct Both {
    Failure said, refused;
  };
  // Returns what was recorded since the last clear.
  Both read() const {
    const std::lock_guard lock(mutex_);
    return both_;
  }
  void clear() noexcept {
    if (!recorded_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    both_ = {};
    recorded_.store(false, std::memory_order_release);
  }

 private:
  void record(Failure& target, Failure failure) {
    const std::lock_guard lock(mutex_);
    target = std::move(failure);
    recorded_.store(true, std::memory_order_release);
  }

  std::atomic<bool> recorded_{false};
  mutable std::mutex mutex_;
  Both both_;
};

}  // namespace ctxbroker::detail
