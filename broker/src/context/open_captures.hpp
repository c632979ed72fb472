// SPDX-License-Identifier: Apache-2.0
// Stream captures that the code of tenants has begun and that have not ended yet.
#pragma once

#include <mutex>
#include <vector>

#include "context/thread_state.hpp"

namespace ctxbroker::detail {

// One for the process, because streams belong to the process. Any thread.
class OpenCaptures {
 public:
  static OpenCaptures& all();

  // `owner` ends what is left open: a guard's frame, or a tenant. Without memory for that, the
  // capture is its code's to end.
  void begun(const void* owner, CUstream stream) noexcept;
  // It has ended on whatever thread, or its stream is about to end.
  void ended(CUstream stream) noexcept;

  bool any() noexcept {
    const std::lock_guard lock(mutex_);
    return !open_.empty();
  }

  // Calls end(stream) for each that the owner has left open. The stream cannot end meanwhile,
  // because drivers crash on the handle of one that has ended.
  template <typename End>
  void end_left(const void* owner, End&& end) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase_if(open_, [&](const Open& one) {
      if (one.owner != owner) return false;
      end(one.stream);
      return true;
    });
  }

 private:
  struct Open {
    const void* owner;
    CUstream stream;
    std::uint64_t thread;  // each thread has its own CU_STREAM_PER_THREAD
  };
  std::mutex mutex_;
  std::vector<Open> open_;
};

}  // namespace ctxbroker::detail
