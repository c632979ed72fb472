// SPDX-License-Identifier: Apache-2.0
#include "process/maker.hpp"

#include <atomic>
#include <new>

namespace ctxbroker::detail {

void keep_for_ever(void* object) noexcept {
  struct Kept {
    void* object;
    Kept* next;
  };
  static std::atomic<Kept*> all{nullptr};
  auto* const kept = new (std::nothrow) Kept{object, all.load()};
  while (kept != nullptr && !all.compare_exchange_weak(kept->next, kept)) continue;
}

}  // namespace ctxbroker::detail
