// The leases that are in force: one per tenant and device, shared by the tenant's instances.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "context/context_filler.hpp"
#include "context/lease.hpp"

namespace ctxbroker::detail {

// Any thread.
class LeaseTable {
 public:
  // All are borrowed and outlive the table.
  LeaseTable(const Driver& driver, const TenantIdentity& host, ProcessFault& fault,
             const ReadyContexts& ready = {});

  // The lease in force, whatever kind it is; or a new one when there is none or it is lost. Throws
  // Error: no_device, and as Lease's maker; context_lost when CUDA has ended in this process, and
  // when the lease is hung.
  std::shared_ptr<Lease> get(const std::shared_ptr<const TenantIdentity>& tenant,
                             const LeaseRequest& request);

  // The lease in force, or null.
  std::shared_ptr<Lease> find(TenantId tenant, int device) const;
  std::vector<std::shared_ptr<Lease>> all() const;  // in force, by tenant and device

  // What waits for work that hangs, on all devices.
  std::vector<PutOff> put_off() const;
  // Ends what the broker holds of the devices. False: some of it, or of the leases, has to wait for
  // work that hangs, so the table has to stay.
  bool shut_down();

  // Throws Error: no_device.
  DeviceHold& device(int ordinal) const;
  ContextFiller& filler() noexcept { return filler_; }

 private:
  using Key = std::pair<std::uint32_t, int>;
  const Driver& driver_;
  ProcessFault& fault_;
  std::vector<std::unique_ptr<DeviceHold>> devices_;  // before the leases, which end first
  mutable std::mutex mutex_;
  std::map<Key, std::weak_ptr<Lease>> leases_;
  ContextFiller filler_;  // last: its thread ends first
};

}  // namespace ctxbroker::detail
