// SPDX-License-Identifier: Apache-2.0
#include "context/open_captures.hpp"

#include <new>

namespace ctxbroker::detail {

OpenCaptures& OpenCaptures::all() {
  static auto* const one = new OpenCaptures;  // threads of plug-ins may capture until the end
  return *one;
}

void OpenCaptures::begun(const void* owner, CUstream stream) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    open_.push_back({owner, stream, thread_number()});
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): see the header
  }
}

void OpenCaptures::ended(CUstream stream) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(open_, [&](const Open& one) {
    return one.stream == stream &&
           (stream != CU_STREAM_PER_THREAD || one.thread == thread_number());
  });
}

}  // namespace ctxbroker::detail
