// SPDX-License-Identifier: Apache-2.0
// Threads that help to copy large pictures. One thread does not use all of the memory's bandwidth.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

namespace ctxbroker::detail {

// Any thread may call it. Copies of several threads at once do not share the helpers.
class CopyCrew {
 public:
  // The least number of bytes with which the helpers help. It takes longer to wake them than to
  // copy less.
  static constexpr std::size_t least_bytes = std::size_t{2} << 20;

  CopyCrew() = default;
  ~CopyCrew();
  CopyCrew(const CopyCrew&) = delete;
  CopyCrew& operator=(const CopyCrew&) = delete;

  // Returns how many helpers this machine is worth: with the caller, half of the processors that
  // the process may use, and not more than the memory can serve.
  static unsigned most_helpers() noexcept;
  // Starts the helpers, unless they are there. If the system has fewer threads, there are fewer.
  void start(unsigned helpers = most_helpers()) noexcept;
  // As std::memcpy. Allocates nothing. The caller copies, too, and alone if there are no helpers or
  // if they help another thread now.
  void copy(void* to, const void* from, std::size_t bytes) noexcept;

 private:
  struct Work {
    std::byte* to;
    const std::byte* from;
    std::size_t bytes;
    std::atomic<std::size_t> next{0};  // where the next piece begins

    bool is_left() const noexcept { return next.load(std::memory_order_relaxed) < bytes; }
    void copy_pieces() noexcept;
  };
  void help() noexcept;

  std::mutex turn_;  // held during a copy with helpers
  std::mutex mutex_;
  std::condition_variable wake_, left_;
  Work* work_ = nullptr;
  unsigned busy_ = 0;  // helpers that use `work_`
  bool is_over_ = false;
  std::vector<std::thread> helpers_;
  std::atomic<bool> has_helpers_{false};
};

}  // namespace ctxbroker::detail
