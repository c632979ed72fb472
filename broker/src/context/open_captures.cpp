// SPDX-License-Identifier: Apache-2.0
#include "context/open_captures.hpp"

#include <algorithm>
#include <new>

namespace ctxbroker::detail {

OpenCaptures& OpenCaptures::all() {
  static auto* const one = new OpenCaptures;  // threads of plug-ins may capture until the end
  return *one;
}

void OpenCaptures::begun(const void* owner, CUstream stream, CUcontext context) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    open_.push_back({owner, stream, context, thread_number()});
    count_.store(open_.size(), std::memory_order_release);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): see the header
  }
}

template <typename IsOver>
void OpenCaptures::forget(IsOver&& is_over) noexcept {
  if (count_.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, is_over);
  count_.store(open_.size(), std::memory_order_release);
}

void OpenCaptures::ended(CUstream stream) noexcept {
  forget([&](const Open& one) {
    return one.stream == stream &&
           (stream != CU_STREAM_PER_THREAD || one.thread == thread_number());
  });
}

void OpenCaptures::ended_with(CUcontext context) noexcept {
  forget([&](const Open& one) { return one.context == context; });
}

std::vector<CUstream> OpenCaptures::left_by(const void* owner) {
  const std::lock_guard lock(mutex_);
  std::vector<CUstream> left;
  for (const Open& one : open_) {
    if (one.owner == owner) left.push_back(one.stream);
  }
  return left;
}

bool OpenCaptures::find_here() noexcept {
  const std::lock_guard lock(mutex_);
  return std::any_of(open_.begin(), open_.end(),
                     [](const Open& one) { return one.thread == thread_number(); });
}

}  // namespace ctxbroker::detail
