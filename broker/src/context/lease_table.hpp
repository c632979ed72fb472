// The leases that are in force: one per tenant, device and kind, shared by the tenant's instances.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "context/lease.hpp"

namespace ctxbroker::detail {

// [main] thread.
class LeaseTable {
 public:
  // The lease in force, or a new one when there is none or it is lost. Throws as Lease's maker.
  std::shared_ptr<Lease> get(const Driver& driver, const std::shared_ptr<const Tenant>& tenant,
                             const LeaseRequest& request);

 private:
  using Key = std::tuple<std::uint32_t, int, LeaseKind>;
  std::map<Key, std::weak_ptr<Lease>> leases_;
};

}  // namespace ctxbroker::detail
