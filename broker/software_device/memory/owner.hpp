// SPDX-License-Identifier: Apache-2.0
// Whose code calls the driver now, for what faults say of memory and of kernels. The software
// device itself knows no tenants, so a broker tells it how to ask.
#pragma once

#include <atomic>

namespace ctxbroker::software {

// Returns a name that stays for ever, or null: nobody in particular. Called on the thread of the
// driver call, possibly with locks of this device held, so it must not call the driver.
using OwnerFunction = const char* (*)();

inline constinit std::atomic<OwnerFunction> owner_function{nullptr};

inline const char* current_owner() noexcept {
  const OwnerFunction ask = owner_function.load(std::memory_order_acquire);
  return ask == nullptr ? nullptr : ask();
}

}  // namespace ctxbroker::software
