// SPDX-License-Identifier: Apache-2.0
#include "context/lease_table.hpp"

#include <algorithm>

#include "ctxbroker/error.hpp"
#include "observe/span.hpp"

namespace ctxbroker::detail {
namespace {

[[noreturn]] void refuse_ended(const Driver& driver, CUresult fault, const std::string& tenant) {
  throw Error(ErrorKind::context_lost,
              "CUDA has ended in this process after " + status_text(driver.table, fault) +
                  "; only a new process can use it again",
              {.status = static_cast<int>(fault),
               .status_name = status_name(driver.table, fault),
               .tenant = tenant});
}

std::vector<std::unique_ptr<UsedDevice>> hold_devices(const Driver& driver,
                                                      const TenantIdentity& host,
                                                      ProcessFault& fault) {
  std::vector<std::unique_ptr<UsedDevice>> devices;
  devices.reserve(driver.handles.size());
  for (int ordinal = 0; ordinal < static_cast<int>(driver.handles.size()); ++ordinal) {
    devices.push_back(std::make_unique<UsedDevice>(driver, ordinal, host, fault));
  }
  return devices;
}

}  // namespace

LeaseTable::LeaseTable(const Driver& driver, const TenantIdentity& host, ProcessFault& fault,
                       const ReadyContexts& ready)
    : driver_(driver),
      fault_(fault),
      devices_(hold_devices(driver, host, fault)),
      host_(host),
      filler_(devices_, ready, host, session_) {}

UsedDevice& LeaseTable::device(int ordinal) const {
  const int count = static_cast<int>(devices_.size());
  if (ordinal < 0 || ordinal >= count) {
    throw Error(ErrorKind::no_device,
                "there is no device " + std::to_string(ordinal) + "; the driver has " +
                    (count == 1 ? "device 0 only" : "devices 0 to " + std::to_string(count - 1)));
  }
  return *devices_[static_cast<std::size_t>(ordinal)];
}

std::shared_ptr<Lease> LeaseTable::get(const std::shared_ptr<const TenantIdentity>& tenant,
                                       const LeaseRequest& request) {
  UsedDevice& used = device(request.device);
  if (fault_.happened()) refuse_ended(driver_, fault_.status(), tenant->name);
  used.end_left();
  std::unique_lock lock(mutex_);
  const Key key{tenant->id.value, request.device};
  // Another thread of the tenant makes it, and waits no longer than the limit.
  made_one_.wait(lock, [&] { return !leases_[key].is_being_made; });
  // The memory of a lease is free when nobody knows its weak pointer any more.
  std::erase_if(leases_, [](const auto& one) {
    return one.second.lease.expired() && !one.second.is_being_made;
  });
  std::shared_ptr<Lease> lease = leases_[key].lease.lock();
  if (lease != nullptr && lease->is_over()) lease = nullptr;
  if (tenant->hung.is_refused(request.device)) {
    throw Error(
        ErrorKind::context_lost,
        "the lease is hung: its work exceeded its timeout, and no other lease is given to " +
            tenant->name,
        {.device = request.device, .tenant = tenant->name});
  }
  if (lease != nullptr && !lease->lost()) return lease;
  leases_[key].is_being_made = true;
  lock.unlock();
  try {
    lease = make(used, tenant, request, lease.get());
  } catch (...) {
    lock.lock();
    leases_[key].is_being_made = false;
    made_one_.notify_all();
    throw;
  }
  if (tenant->pinned_ahead.load(std::memory_order_relaxed) != 0) lease->pinned_store();
  lock.lock();
  leases_[key] = {lease};
  made_one_.notify_all();
  std::erase_if(made_, [](const auto& one) { return one.expired(); });
  made_.push_back(lease);
  filler_.wake();
  return lease;
}

std::shared_ptr<Lease> LeaseTable::make(UsedDevice& used,
                                        const std::shared_ptr<const TenantIdentity>& tenant,
                                        const LeaseRequest& request, Lease* lost) {
  const RealtimeWork work(*tenant, realtime_call("make lease"));
  const ScopedSpan span(SpanCategory::lease, "make lease", tenant->name.c_str(), tenant->id,
                        static_cast<std::uint64_t>(request.device));
  const auto kind_beside_hung_work = [&] {
    return decide(request, {used.offers_green(), "", "work hangs"}).choice.kind;
  };
  const std::uint64_t generation = used.use(kind_beside_hung_work() == LeaseKind::private_own);
  const HungWork& family = *used.family();
  Groups left = lost != nullptr ? lost->take_partition() : Groups{};
  for (bool again = false;; again = true) {
    LeaseOffer offer{used.offers_green(), "this driver offers no green contexts"};
    if (family.any()) offer.hung = family.why_not_made();
    LeaseDecision decision = decide(request, offer);
    decision.one_context = request.one_context;
    if (driver_.devices[static_cast<std::size_t>(request.device)].mps) {
      decision.reason += "; under MPS, so a fault of any client of the MPS server ends it";
    }
    try {
      return std::make_shared<Lease>(used, generation, tenant, request.asked, decision,
                                     std::move(left));
    } catch (const Error& error) {
      // The driver waits for work that nobody knew to hang: an automatic choice is made anew.
      const bool is_decided_anew = kind_beside_hung_work() != decision.choice.kind;
      if (again || error.kind() != ErrorKind::lease_unavailable || !family.any() ||
          !is_decided_anew) {
        throw;
      }
      left.clear();  // the partition is free again
    }
  }
}

UsedDevice* LeaseTable::first_in_use() const noexcept {
  const auto used = std::find_if(devices_.begin(), devices_.end(),
                                 [](const auto& device) { return device->in_use(); });
  return used == devices_.end() ? nullptr : used->get();
}

void LeaseTable::begin_realtime() {
  session_.begin();
  filler_.wait_for_last();
}

bool LeaseTable::end_realtime() {
  if (!session_.end()) return false;
  filler_.go_on();
  tell_realtime_calls(true);
  return true;
}

void LeaseTable::tell_realtime_calls(bool at_once) const {
  detail::tell_realtime_calls(host_, at_once);
  for (const auto& lease : all()) detail::tell_realtime_calls(lease->tenant(), at_once);
}

std::shared_ptr<Lease> LeaseTable::find(TenantId tenant, int device) const {
  const std::lock_guard lock(mutex_);
  const auto found = leases_.find({tenant.value, device});
  auto lease = found == leases_.end() ? nullptr : found->second.lease.lock();
  return lease != nullptr && !lease->is_over() ? lease : nullptr;
}

bool LeaseTable::shut_down() {
  session_.end_all();
  filler_.stop();
  // A lease that still exists belongs to the object of a closed tenant, or waits for hung work.
  std::vector<std::shared_ptr<Lease>> left;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& made : made_) {
      if (auto lease = made.lock()) left.push_back(std::move(lease));
    }
  }
  for (const auto& lease : left) lease->end();
  left.clear();
  end_left();
  bool all = true;
  for (const auto& device : devices_) all &= device->shut_down();
  return all;
}

void LeaseTable::end_left() noexcept {
  for (const auto& device : devices_) device->end_left();
  end_idle();
}

void LeaseTable::end_idle() noexcept {
  for (const auto& device : devices_) device->end_if_idle();
}

void LeaseTable::free_what_is_done() const noexcept {
  for (const auto& device : devices_) device->free_what_is_done();
}

std::vector<PutOff> LeaseTable::put_off() const {
  std::vector<PutOff> list;
  for (const auto& device : devices_) {
    for (PutOff& one : device->kept_back()) list.push_back(std::move(one));
    device->memory_stores().list_put_off(list);
    for (const auto& family : device->families()) {
      for (PutOff& one : family->put_off()) {
        one.device = device->ordinal();
        list.push_back(std::move(one));
      }
    }
  }
  return list;
}

std::vector<std::shared_ptr<Lease>> LeaseTable::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Lease>> leases;
  for (const auto& [key, entry] : leases_) {
    auto lease = entry.lease.lock();
    if (lease != nullptr && !lease->is_over()) leases.push_back(std::move(lease));
  }
  return leases;
}

}  // namespace ctxbroker::detail
