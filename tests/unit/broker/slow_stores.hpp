// Makes what this processor writes next come late to the others: behind stores to memory that is
// in no cache. Shows what a missing barrier does, which otherwise takes luck.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace ctxbroker::detail {

class SlowStores {
 public:
  void operator()() noexcept {
    for (int i = 0; i < 40; ++i) {
      next_ = (next_ + step) % bytes;
      memory_[next_].store(1, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::size_t bytes = std::size_t{64} << 20;  // more than caches hold
  static constexpr std::size_t step = 4096 + 64;               // nothing fetches it ahead
  std::unique_ptr<std::atomic<char>[]> memory_ { new std::atomic<char>[ bytes ]() };
  std::size_t next_ = 0;
};

}  // namespace ctxbroker::detail
