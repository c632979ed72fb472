#include "context/lease_table.hpp"

namespace ctxbroker::detail {

std::shared_ptr<Lease> LeaseTable::get(const Driver& driver,
                                       const std::shared_ptr<const Tenant>& tenant,
                                       const LeaseRequest& request) {
  const LeaseDecision decision = decide(request);
  std::weak_ptr<Lease>& slot = leases_[{tenant->id.value, request.device, decision.kind}];
  std::shared_ptr<Lease> lease = slot.lock();
  // A second instance that asked differently but gets the same kind shares the first one's lease.
  if (lease == nullptr || lease->lost()) {
    lease = std::make_shared<Lease>(driver, tenant, request, decision);
    slot = lease;
  }
  return lease;
}

}  // namespace ctxbroker::detail
