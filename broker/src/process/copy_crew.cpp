// SPDX-License-Identifier: Apache-2.0
#include "process/copy_crew.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <system_error>

#include "process/own_thread.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::size_t piece_bytes = std::size_t{512} << 10;
constexpr unsigned most_that_copy = 8;

}  // namespace

CopyCrew::~CopyCrew() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  wake_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

unsigned CopyCrew::most_helpers() noexcept {
  return std::clamp(std::thread::hardware_concurrency() / 2, 1U, most_that_copy) - 1;
}

void CopyCrew::start(unsigned helpers) noexcept {
  const std::lock_guard turn(turn_);
  try {
    helpers_.reserve(helpers);
    while (helpers_.size() < helpers) {
      helpers_.push_back(start_own_thread([this] { help(); }));
    }
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): fewer help
  } catch (const std::bad_alloc&) {     // NOLINT(bugprone-empty-catch): likewise
  }
  has_helpers_.store(!helpers_.empty(), std::memory_order_release);
}

void CopyCrew::Work::copy_pieces() noexcept {
  for (;;) {
    const std::size_t at = next.fetch_add(piece_bytes, std::memory_order_relaxed);
    if (at >= bytes) return;
    std::memcpy(to + at, from + at, std::min(piece_bytes, bytes - at));
  }
}

void CopyCrew::help() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return is_over_ || (work_ != nullptr && work_->is_left()); });
    if (is_over_) return;
    Work& work = *work_;
    ++busy_;
    lock.unlock();
    work.copy_pieces();
    lock.lock();
    if (--busy_ == 0) left_.notify_all();
  }
}

void CopyCrew::copy(void* to, const void* from, std::size_t bytes) noexcept {
  const bool is_large = bytes >= least_bytes && has_helpers_.load(std::memory_order_acquire);
  std::unique_lock turn(turn_, std::defer_lock);
  if (!is_large || !turn.try_lock()) {
    std::memcpy(to, from, bytes);
    return;
  }
  Work work{static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes};
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
  }
  wake_.notify_all();
  work.copy_pieces();
  std::unique_lock lock(mutex_);
  work_ = nullptr;  // a helper that wakes up now finds nothing
  left_.wait(lock, [this] { return busy_ == 0; });
}

}  // namespace ctxbroker::detail
