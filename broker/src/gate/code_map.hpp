// SPDX-License-Identifier: Apache-2.0
// Says whose code lies at an address. A tenant owns the libraries that came into the process with
// one of its libraries, those that its code opened later, and those that were there before the host
// loaded them for it. A library that another tenant needs or opens too belongs to nobody. What
// CodeClaims say about a library counts before all that. Code that stays in the process keeps its
// GatedTenant, and each tenant that adopts this code opens it again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gate/code_claims.hpp"
#include "gate/gated_tenant.hpp"
#include "gate/loaded_objects.hpp"

namespace ctxbroker::detail {

// Stands around dlopen and dlclose of a tenant's library. The library at that path and what comes
// with it is the tenant's, also while it runs before dlopen has returned. What the host opens
// meanwhile on another thread stays the host's, and so does code of no library. The calling thread
// has the turn of loader_turns. Changes nest, as when a constructor loads a library.
class CodeChange {
 public:
  enum class Way { arrives, leaves };
  CodeChange(GatedTenant& tenant, Way way, const std::string& path);  // throws std::bad_alloc
  ~CodeChange() { end(); }
  // Call it as soon as dlopen has returned: from then on other threads can load libraries.
  void end() noexcept;
  CodeChange(const CodeChange&) = delete;
  CodeChange& operator=(const CodeChange&) = delete;

 private:
  GatedTenant& tenant_;
  Way way_;
  bool has_ended_ = false;
};

// Call the first before a tenant's code opens a library, and the second after it has. What is new
// then, and needed by nobody else, is that tenant's. A library of another open tenant becomes
// nobody's. One that a closed tenant left is opened beside this one. Both throw std::bad_alloc. Any
// thread.
void record_code_before_open();
void record_opened_code(GatedTenant& tenant, void* library);
// Returns whether the loader's search for a library depends on which of the tenant's code opens it.
// Throws std::bad_alloc. Any thread.
bool has_run_path(const GatedTenant& tenant);

// Says what became of a library that the host has loaded for a tenant.
enum class ClaimResult {
  own,     // it came with that, or was the tenant's already
  taken,   // it was the host's; from now on it is the tenant's, with what only it needs
  shared,  // another tenant uses it too: it belongs to neither
  common,  // the C or C++ library, the driver: everybody's, and it stays so
  claimed  // a pattern gives it to another tenant, whose it stays: see CodeClaims
};
struct CodeClaim {
  ClaimResult result = ClaimResult::own;
  std::vector<Extent> code;      // that was taken
  GatedTenant* other = nullptr;  // that uses it too, if that is known, or that has it
};
// Makes the library that holds the address the tenant's, after it was loaded for that tenant. It
// may have been in the process before. Throws std::bad_alloc. Any thread.
CodeClaim claim_code(GatedTenant& tenant, const void* address);

struct CodeOwner {
  GatedTenant* tenant = nullptr;  // null: the host's, or nobody's
  bool starts_threads = false;    // the C or C++ library, whose code every thread begins with
};
CodeOwner owner_of_code(const void* address) noexcept;  // any thread
// The same for an address that the calling thread runs or will return to. Where the map may be too
// old to say, is_known is false. Takes no lock of the loader's. Any thread.
struct RunningCode {
  CodeOwner owner;
  bool is_known = false;
};
RunningCode running_code(const void* address) noexcept;
// The libraries that are this tenant's alone. Throws std::bad_alloc. Any thread.
std::vector<Extent> code_of(const GatedTenant& tenant);
bool has_code(const GatedTenant& tenant) noexcept;  // any thread

// Gives what is loaded to new claims, unless it is an open tenant's. Throws std::bad_alloc. Any
// thread.
void give_loaded_code_to(CodeClaims& claims);
// Looks at what is loaded, if that has changed since the gate last looked. It asks the loader
// whether it has. Does nothing in a process that never had claims. Any thread.
void look_for_claimed_code() noexcept;

}  // namespace ctxbroker::detail
