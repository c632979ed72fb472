// SPDX-License-Identifier: Apache-2.0
// TenantImpl: its end, and what has to be waited for.
#include <algorithm>
#include <utility>

#include "context/realtime_session.hpp"
#include "context/timed_wait.hpp"
#include "ctxbroker/error.hpp"
#include "driver/driver_error.hpp"
#include "gate/code_map.hpp"
#include "gate/give_back.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker::detail {

// Ends the contexts of lost leases early, where nothing can use a private context's handle any
// more. Once the context is gone, its handle must not reach the driver. The handle could be held
// by:
//   - guards, and threads without one that have it current: they are counted;
//   - owners of the lease (activations, streams, memory): this object is the only one;
//   - the tenant's own code, through things that it made there: these are in its ledger, unless
//     it called past the gate. A runtime library has ways past it, and remembers contexts;
//   - code that has the handle alone: if it makes that current, it gets the context of the next
//     generation.
void TenantImpl::end_lost_contexts() noexcept {
  if (gated() == nullptr || broker_.gate().mode != GateMode::before_driver) return;
  const std::lock_guard lock(mutex_);
  if (closed_ || closing_by_ != std::thread::id() || gated()->has_private_tables()) return;
  for (const auto& lease : leases_) {
    if (lease.use_count() != 1 || !lease->lost() || lease->ended_early()) continue;
    lease->end_early([&] {
      return !gated()->has_private_tables() && !gated()->holds_anything_of(lease->generation());
    });
  }
}

// False when it does not end: then the lease is hung.
bool TenantImpl::wait_for(Lease& lease, CUstream stream) noexcept {
  if (lease.is_hung()) return false;
  const auto where = lease.end_target(Home::context);
  if (!where) return true;  // it ended with its context
  const CUresult status = guarded(
      *where, {}, [&] { return detail::wait_for(lease.table(), stream, broker_.end_timeout()); });
  // Nothing else that is wrong with a stream of the code's own says anything about the lease.
  if (is_process_fault(status)) lease.report_status(status);
  if (status != CUDA_ERROR_TIMEOUT) return true;
  lease.hang(stream);
  return false;
}

// Waits for the work of the tenant. Work that is enqueued may call functions of the tenant's
// libraries. Things that are given back under work that does not end would be waited for without
// end. It waits in the broker's streams, in the streams of the tenant's code that the gate knows,
// and in the default streams of contexts that only this tenant uses.
bool TenantImpl::wait_for_work(const Leases& leases) noexcept {
  bool idle = true;
  const auto wait_for_streams_of = [&](const Holder& one) {
    for (const Holding& held : ledger().held_by(one)) {
      if (held.kind != Kind::stream || held.ended) continue;
      for (const auto& lease : leases) {
        if (lease->generation() != held.generation) continue;
        idle &= wait_for(*lease, reinterpret_cast<CUstream>(held.handle));
      }
    }
  };
  try {
    wait_for_streams_of(holder());
    for (const auto& lease : leases) {
      idle &= !lease->is_hung();
      if (lease->kind() == LeaseKind::shared || lease->is_hung()) continue;
      if (lease->wait_for_default_streams(broker_.end_timeout()) != CUDA_ERROR_TIMEOUT) continue;
      lease->hang(nullptr);
      idle = false;
    }
    if (gated() != nullptr) wait_for_streams_of(gated()->holder());
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; what follows waits, then
  }
  return idle;
}

// The driver frees memory of one device without a look at what another one does with it: a write
// that comes later is a fault, which ends CUDA in the process. So memory waits for all that the
// tenant has under way on the other devices. Where that is not known to be done, because it hangs
// or a neighbour's work hangs there, endings wait for that family.
void TenantImpl::wait_for_other_devices(const Leases& leases, int device) noexcept {
  for (const auto& lease : leases) {
    if (lease->device_ordinal() == device || lease->synchronize()) continue;
    identity_->hung.add(lease->device_ordinal(), lease->family());
  }
}

void TenantImpl::close() {
  Leases leases;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    check_open();
    if (graphs_ != 0) {
      throw Error(ErrorKind::wrong_state,
                  "tenant " + identity_->name +
                      " cannot be closed while a graph has its ends in the tenant's memory; end "
                      "the graph first",
                  {.tenant = identity_->name});
    }
    leases = leases_;  // it gets no other ones while this thread waits
    close_to_users();
    closing_by_ = std::this_thread::get_id();
  }
  // Not under the lock: others need it for a moment, as Broker::poll does, and functions that the
  // work calls may ask the gate for a lease.
  const bool hangs = !wait_for_work(leases);
  for (const auto& lease : leases) wait_for_other_devices(leases, lease->device_ordinal());
  leases.clear();
  std::vector<std::shared_ptr<LibraryImage>> libraries;
  {
    const std::lock_guard lock(mutex_);
    work_hangs_ = hangs;
    libraries.swap(libraries_);
  }
  // Not under the lock: destructors of the library may ask the gate for a lease.
  for (auto library = libraries.rbegin(); library != libraries.rend(); ++library) {
    dismiss(**library, options_.unload_at_close);
  }
  give_back_what_is_left();
  tell_realtime_calls(*identity_, true);
  const std::lock_guard lock(mutex_);
  for (DeviceEntry& entry : by_device_) entry.current.store(nullptr, std::memory_order_release);
  end_leases();
  closed_.store(true, std::memory_order_release);
  if (gated() != nullptr && !work_hangs_) gated()->mark_over();  // the last use of it
}

std::shared_ptr<TenantImpl> TenantImpl::lend(const std::shared_ptr<TenantImpl>& tenant) {
  const std::lock_guard lock(tenant->mutex_);
  tenant->check_open();
  ++tenant->graphs_;
  return {tenant.get(), [tenant](TenantImpl* one) { --one->graphs_; }};
}

// A thread may be about to enter a lease that it has found before: the leases go with the tenant,
// and nobody can enter them any more. One whose work hangs, and for which something is put off,
// ends with that.
void TenantImpl::end_leases() noexcept {
  for (const auto& lease : leases_) {
    lease->users().close_for_good();
    if (!lease->is_hung() || lease.use_count() == 1) lease->end();
  }
}

// Returns in words what may still call the tenant's code; empty: nothing may. Throws
// std::bad_alloc.
std::string TenantImpl::what_may_call_code() {
  if (work_hangs_ || identity_->hung.anywhere()) return "work that hangs may call it";
  if (gated() == nullptr) return {};
  std::chrono::milliseconds limit = broker_.end_timeout();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& lease : leases_) {
      // Functions that were enqueued in a lost lease may never be called.
      if (lease->lost()) limit = std::chrono::milliseconds(1);
    }
  }
  const std::vector<GatedTenant*> all = gated()->all_of_tenant();
  for (GatedTenant* const one : all) {
    std::string left = one->pending_calls().wait(limit);
    if (left.empty()) continue;
    for (GatedTenant* const other : all) other->pending_calls().admit();
    return left;
  }
  return {};
}

// All of them or none. Other users of a lease, plug-in instances, have their own ends.
void TenantImpl::close_to_users() {
  for (std::size_t index = 0; index < leases_.size(); ++index) {
    const Lease& lease = *leases_[index];
    if (lease.ended_early() || lease.users().close()) continue;
    while (index > 0) {
      if (!leases_[--index]->ended_early()) leases_[index]->users().reopen();
    }
    throw Error(ErrorKind::wrong_state,
                "tenant " + identity_->name +
                    " cannot be closed while a thread is inside its lease; end its guards first",
                {.device = lease.device_ordinal(), .tenant = identity_->name});
  }
}

// The runtime library in code that stays goes on using the primaries that it has met.
void TenantImpl::keep_primaries(GatedTenant& gated) {
  for (int device = 0; device < device_count(); ++device) {
    if (!gated.has_worked_on(device)) continue;
    const Driver& driver = broker_.driver();
    const CUresult status =
        keep_primary(driver.table, driver.handles[static_cast<std::size_t>(device)]);
    if (status != CUDA_SUCCESS) {
      identity_->log(Severity::warning, "tenant",
                     "the primary context cannot be kept for code that stays in the process: " +
                         status_text(driver.table, status));
    }
  }
}

std::vector<CUcontext> TenantImpl::own_contexts() {
  std::vector<CUcontext> all;
  for (const auto& lease : leases_) {
    if (lease->kind() == LeaseKind::shared) continue;  // which is everybody's
    for (const LeaseContext& one : lease->contexts()) all.push_back(one.context);
  }
  return all;
}

// Gives back what the tenant's code made through the driver and forgot, and what the host made for
// the tenant.
void TenantImpl::give_back_what_is_left() noexcept {
  try {
    if (gated() != nullptr) {
      const Reason reason{*identity_, broker_.driver().table, "the tenant left"};
      const std::vector<GatedTenant*> all = gated()->all_of_tenant();
      for (GatedTenant* const one : all) {
        // One of several may have no code that could use the things that stay.
        const bool stays = resident_ && (all.size() == 1 || !code_of(*one).empty());
        if (stays && one->has_private_tables()) keep_primaries(*one);
        give_back(*one, stays, reason);
        one->leave_contexts(own_contexts());
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; the driver's end frees it
  }
  if (gated() != nullptr) gated()->close();
  give_back_host_things();
}

void TenantImpl::give_back_host_things() noexcept {
  try {
    if (!leases_.empty()) give_back(holder(), {*identity_, broker_.driver().table});
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; the driver's end frees it
  }
}

}  // namespace ctxbroker::detail
