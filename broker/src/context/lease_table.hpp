// SPDX-License-Identifier: Apache-2.0
// The current leases: one per tenant and device, which the tenant's instances share.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "context/context_filler.hpp"
#include "context/lease.hpp"
#include "context/realtime_session.hpp"

namespace ctxbroker::detail {

// Any thread may use it.
class LeaseTable {
 public:
  // Borrows all its arguments; they must outlive the table.
  LeaseTable(const Driver& driver, const TenantIdentity& host, ProcessFault& fault,
             const ReadyContexts& ready = {});

  // Returns the current lease, whatever its kind, or makes one when there is none or it is lost.
  // An automatic choice gets a private lease while work hangs that the others would wait for. No
  // lock is held while the driver makes a context.
  // Throws Error: no_device, and what Lease's constructor throws; context_lost when CUDA has ended
  // in this process or the lease is hung.
  std::shared_ptr<Lease> get(const std::shared_ptr<const TenantIdentity>& tenant,
                             const LeaseRequest& request);

  // Returns the current lease, or null.
  std::shared_ptr<Lease> find(TenantId tenant, int device) const;
  std::vector<std::shared_ptr<Lease>> all() const;  // by tenant and device

  // Ends what was kept back for threads outside of guards, where they have left, and unloads
  // modules where nothing runs: see UsedDevice.
  void end_left() noexcept;
  // Ends what is kept until nothing runs on its device, where that is so: see
  // UsedDevice::end_when_idle.
  void end_idle() noexcept;
  // Calls MemoryStores::free_what_is_done for all devices.
  void free_what_is_done() const noexcept;
  // Lists what waits for hung work, on all devices.
  std::vector<PutOff> put_off() const;
  // Ends what the broker holds of the devices. Returns false when some of it waits for hung work;
  // then the table must stay alive.
  bool shut_down();

  // Throws Error: no_device.
  UsedDevice& device(int ordinal) const;
  // Returns the first device that is in use, or null.
  UsedDevice* first_in_use() const noexcept;
  ContextFiller& filler() noexcept { return filler_; }
  // Begins a real-time session. Waits until the context that is being made ahead is finished.
  void begin_realtime();
  // Ends the session that the matching begin_realtime began. False: none is open.
  bool end_realtime();
  // Writes a record for each tenant that has held up neighbours since its last record.
  void tell_realtime_calls(bool at_once) const;

 private:
  using Key = std::pair<std::uint32_t, int>;
  // The lease of a tenant on a device.
  struct Entry {
    std::weak_ptr<Lease> lease;
    bool is_being_made = false;  // by a thread that does not hold the lock meanwhile
  };
  std::shared_ptr<Lease> make(UsedDevice& used, const std::shared_ptr<const TenantIdentity>& tenant,
                              const LeaseRequest& request, Lease* lost);
  const Driver& driver_;
  ProcessFault& fault_;
  std::vector<std::unique_ptr<UsedDevice>> devices_;  // before the leases, which end first
  const TenantIdentity& host_;
  mutable std::mutex mutex_;
  std::condition_variable made_one_;
  std::map<Key, Entry> leases_;
  std::vector<std::weak_ptr<Lease>> made_;  // of all generations
  RealtimeSession session_;
  ContextFiller filler_;  // last: its thread ends first
};

}  // namespace ctxbroker::detail
