// SPDX-License-Identifier: Apache-2.0
// A turn of the system's loader, which serves one thread at a time.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "context/tenant_identity.hpp"
#include "process/turn.hpp"

namespace ctxbroker::detail {

// One thread of the process at a time loads or unloads a library for a tenant. The system's loader
// would make the others wait without a limit, in most of its functions, until the constructors of
// the library have returned. Taken before all locks.
class LoaderTurn {
 public:
  // Waits for the broker's other loads, and then for those of everybody else, at most for `limit`
  // in all. Zero: without a limit. `function` is static text, "constructor" or "destructor".
  //
  // A thread that is in the loader already has the loader, and waits for nobody else's loads.
  // Nobody can be kept from calling the loader between this and what the turn is for.
  LoaderTurn(const TenantIdentity& tenant, const std::filesystem::path& library,
             const char* function, std::chrono::milliseconds limit);

  explicit operator bool() const noexcept { return turn_ && is_free_; }
  // Without the turn: says what keeps the loader. Throws std::bad_alloc.
  std::string why_not() const;

 private:
  const std::chrono::milliseconds limit_;
  const std::chrono::steady_clock::time_point begin_;
  const Turn turn_;
  const bool is_free_;
};

}  // namespace ctxbroker::detail
