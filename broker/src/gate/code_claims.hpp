// SPDX-License-Identifier: Apache-2.0
// Says whose a library is by its file, before anybody adopts it. Each broker whose policy has
// patterns for libraries adds its claims. The code map asks them when it meets a library.
#pragma once

#include <memory>
#include <vector>

#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

class GatedTenant;

// The room above the gate implements it.
class CodeClaims {
 public:
  virtual ~CodeClaims() = default;
  // Says how the gate has met a library.
  struct Meeting {
    bool was_here = false;    // it was in the process before the claims
    bool is_adopted = false;  // it came with a library that the host loads for a tenant
  };
  struct Claim {
    GatedTenant* tenant = nullptr;  // null: the claims say nothing about the library
    bool yields = false;            // the host may still adopt the library for another tenant
    explicit operator bool() const noexcept { return tenant != nullptr; }
  };
  // Says which tenant a library belongs to. `present` is what is loaded, with the library and with
  // the names of the files. Any thread, without a lock of the gate's; the thread may be inside the
  // loader. Throws std::bad_alloc.
  virtual Claim claimant(const LoadedObject& library, const std::vector<LoadedObject>& present,
                         Meeting meeting) = 0;
};

using AllClaims = std::vector<std::shared_ptr<CodeClaims>>;

// The map of code asks the claims from now on, behind those that were added before. Throws
// std::bad_alloc. Any thread.
void add_claims(const std::shared_ptr<CodeClaims>& claims);
// A call of `claimant` may still be under way on another thread, which keeps the claims alive. Any
// thread.
void remove_claims(const CodeClaims& claims) noexcept;
std::shared_ptr<const AllClaims> open_claims() noexcept;  // any thread

// Returns whether there ever were any. The program itself closes claimed libraries, and nobody
// tells the gate. Any thread; takes no lock.
bool had_claims() noexcept;

}  // namespace ctxbroker::detail
