// SPDX-License-Identifier: Apache-2.0
// The current leases: one per tenant and device, which the tenant's instances share.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "context/context_filler.hpp"
#include "context/lease.hpp"

namespace ctxbroker::detail {

// Any thread may use it.
class LeaseTable {
 public:
  // Borrows all its arguments; they must outlive the table.
  LeaseTable(const Driver& driver, const TenantIdentity& host, ProcessFault& fault,
             const ReadyContexts& ready = {});

  // Returns the current lease, whatever its kind, or makes one when there is none or it is lost.
  // Throws Error: no_device, and what Lease's constructor throws; context_lost when CUDA has ended
  // in this process or the lease is hung.
  std::shared_ptr<Lease> get(const std::shared_ptr<const TenantIdentity>& tenant,
                             const LeaseRequest& request);

  // Returns the current lease, or null.
  std::shared_ptr<Lease> find(TenantId tenant, int device) const;
  std::vector<std::shared_ptr<Lease>> all() const;  // by tenant and device

  // Lists what waits for hung work, on all devices.
  // Ends what was kept back for threads outside of guards, where they have left: see UsedDevice.
  void end_left() noexcept;
  std::vector<PutOff> put_off() const;
  // Ends what the broker holds of the devices. Returns false when some of it waits for hung work;
  // then the table must stay alive.
  bool shut_down();

  // Throws Error: no_device.
  UsedDevice& device(int ordinal) const;
  ContextFiller& filler() noexcept { return filler_; }

 private:
  using Key = std::pair<std::uint32_t, int>;
  const Driver& driver_;
  ProcessFault& fault_;
  std::vector<std::unique_ptr<UsedDevice>> devices_;  // before the leases, which end first
  mutable std::mutex mutex_;
  std::map<Key, std::weak_ptr<Lease>> leases_;
  std::vector<std::weak_ptr<Lease>> made_;  // of all generations
  ContextFiller filler_;                    // last: its thread ends first
};

}  // namespace ctxbroker::detail
