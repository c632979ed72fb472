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

template <typename Change>
void OpenCaptures::change(Change&& change) noexcept {
  if (count_.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(mutex_);
  for (Open& one : open_) change(one);
}

void OpenCaptures::ended(CUstream stream) noexcept {
  forget([&](const Open& one) {
    return one.stream == stream &&
           (stream != CU_STREAM_PER_THREAD || one.thread == thread_number());
  });
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

EndingCaptures::EndingCaptures(CUstream stream) noexcept : stream_(stream) {
  if (stream != nullptr) begin();
}

EndingCaptures::EndingCaptures(CUcontext context) noexcept : context_(context) {
  begin();
}

void EndingCaptures::begin() const noexcept {
  OpenCaptures::all().change([&](OpenCaptures::Open& one) {
    if (is_among(one)) ++one.ends;
  });
}

bool EndingCaptures::is_among(const OpenCaptures::Open& one) const noexcept {
  if (context_ != nullptr) return one.context == context_;
  return one.stream == stream_ && (stream_ != CU_STREAM_PER_THREAD || one.thread == thread_);
}

void EndingCaptures::settle(bool has_ended) const noexcept {
  if (has_ended) {
    OpenCaptures::all().forget(
        [&](const OpenCaptures::Open& one) { return one.ends != 0 && is_among(one); });
  } else {
    OpenCaptures::all().change([&](OpenCaptures::Open& one) {
      if (one.ends != 0 && is_among(one)) --one.ends;
    });
  }
}

}  // namespace ctxbroker::detail
