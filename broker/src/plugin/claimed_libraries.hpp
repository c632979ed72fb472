// SPDX-License-Identifier: Apache-2.0
// The libraries that the policy's patterns give to tenants, and these tenants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ctxbroker/metrics.hpp"
#include "ctxbroker/policy.hpp"
#include "gate/code_claims.hpp"
#include "plugin/cuda_package.hpp"

namespace ctxbroker::detail {

class TenantImpl;
struct TenantIdentity;

// LibraryPattern::tenant of a pattern that makes each package a tenant.
constexpr std::string_view each_package = "*";

// An open tenant. The last copy closes it.
struct ClaimingTenant {
  std::shared_ptr<TenantImpl> tenant;
  std::shared_ptr<const TenantIdentity> identity;
};

// The functions of the broker that the claims use. The functions are called until `close` returns.
struct ClaimingBroker {
  std::function<ClaimingTenant(const std::string& name)> open;  // throws Error
  // The last handle of it has gone. Must not throw.
  std::function<void(TenantImpl& tenant)> forget_handle;
  // The tenant's code stays in the process when the tenant closes. Must not throw.
  std::function<void(TenantImpl& tenant)> keep_code;
  bool has_late_gate = false;
};

// Any thread.
class ClaimedLibraries final : public CodeClaims {
 public:
  // Opens a tenant for each name in the patterns. Throws Error.
  ClaimedLibraries(ClaimingBroker broker, std::vector<LibraryPattern> patterns);

  Claim claimant(const LoadedObject& library, const std::vector<LoadedObject>& present,
                 Meeting meeting) override;
  // Returns the pattern that gives the file to another tenant than that. Null: none does. What each
  // package gets by "*" is free for whoever adopts it.
  const LibraryPattern* taken_by(const std::filesystem::path& file,
                                 const std::string& tenant) const;

  // Returns a handle of the tenant with that name, which is open until the broker closes. Its
  // handles have a count of their own. Null: no pattern has opened such a tenant.
  std::shared_ptr<TenantImpl> handle(const std::string& name);
  // Returns whether it is one of the tenants.
  bool has(const TenantImpl& tenant) const;
  // Returns whether anybody has a handle of it.
  bool is_in_use(const TenantImpl& tenant) const;
  // Looks for libraries that have come. A late gate has to be led to them.
  void look() noexcept;

  std::vector<LibraryMetrics> libraries() const;
  // The patterns that have matched no library so far, and those that matched only what earlier ones
  // took.
  std::vector<std::string> unmatched() const;
  std::vector<LatePattern> late() const;

  // Closes the tenants. From then on no library is claimed. What was claimed stays with its closed
  // tenant until another broker's claims, or a host that adopts it, open that again.
  void close() noexcept;

 private:
  struct Opened {
    ClaimingTenant its;
    std::weak_ptr<TenantImpl> handle;
  };
  Opened& opened(const std::string& name);  // under the lock
  // The name of a package's tenant. Packages of one name that lie in different folders get numbers.
  // Under the lock.
  std::string name_for(const Package& package);

  const ClaimingBroker broker_;
  const std::vector<LibraryPattern> patterns_;
  mutable std::mutex mutex_;  // of what follows
  bool is_closed_ = false;
  std::uint64_t owners_ = 0;               // owners_of_code() at the last look of a late gate
  std::map<std::string, Opened> tenants_;  // by name
  std::vector<std::pair<Package, std::string>> packages_;  // and their tenants' names
  std::set<std::size_t> matched_;                          // patterns that took a library
  std::map<std::size_t, std::size_t> late_;  // a pattern, and the earlier one that took its first
  std::map<std::string, LibraryMetrics> libraries_;  // by path
};

}  // namespace ctxbroker::detail
