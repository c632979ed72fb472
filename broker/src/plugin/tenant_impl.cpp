// SPDX-License-Identifier: Apache-2.0
#include "plugin/tenant_impl.hpp"

#include <algorithm>
#include <list>
#include <utility>

#include "context/open_captures.hpp"
#include "context/realtime_session.hpp"
#include "ctxbroker/error.hpp"
#include "driver/driver_error.hpp"
#include "ledger/give_back.hpp"
#include "observe/span.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/loss.hpp"

namespace ctxbroker::detail {

TenantImpl::TenantImpl(BrokerImpl& broker, std::shared_ptr<const TenantIdentity> identity,
                       TenantOptions options)
    : LeaseSource(broker.has_driver() ? broker.driver().devices.size() : 0),
      broker_(broker),
      identity_(std::move(identity)),
      options_(std::move(options)),
      by_device_(static_cast<std::size_t>(device_count())) {
  if (identity_->id == host_tenant) {
    return;  // no policy applies to it
  }
  if (broker.gate().mode != GateMode::none) {
    gated_tenant(identity_).open(*this, identity_);
  }
  know_plugins({identity_->name});
}

void TenantImpl::know_plugins(const std::vector<std::string>& ids,
                              const std::vector<std::string>& sharing) {
  identity_->memory_source = memory_source(options_.memory, broker_.policy(), ids, sharing);
  identity_->pinned_ahead = pinned_ahead(options_.pinned_ahead, broker_.policy(), ids);
  identity_->realtime.set_refuses(refuses_in_realtime(broker_.policy(), ids));
  std::string not_kept;
  for (const LimitRow& row : limit_rows()) {
    const std::uint64_t limit = driver_limit(row, options_, broker_.policy(), ids);
    if (gated() != nullptr) {
      gated()->limits().of(row.limit).set_limit(limit);
    } else if (limit != 0 && limit != row.preset) {
      not_kept += (not_kept.empty() ? "" : ", ") + std::to_string(limit) + " " + row.what;
    }
  }
  if (not_kept.empty() || told_of_limits_) return;
  told_of_limits_ = true;
  identity_->log(Severity::warning, "gate",
                 "without the gate nobody counts what the tenant takes from the driver, so its "
                 "limits are not kept: " +
                     not_kept);
}

namespace {

// Guards that outlive their tenant look at the lease that they are in when they end.
void keep_for_good(std::vector<std::shared_ptr<Lease>>& leases) noexcept {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  try {
    static auto& kept = *new std::list<std::vector<std::shared_ptr<Lease>>>;
    kept.emplace_back().swap(leases);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; then it goes with the tenant
  }
}

}  // namespace

TenantImpl::~TenantImpl() {
  try {
    close();
    return;
  } catch (const Error& error) {
    // A thread that is inside goes on using the context: it stays until the process ends.
    identity_->log(Severity::error, "tenant", error.what());
    for (const auto& lease : leases_) lease->leave_for_good();
    for (const auto& library : libraries_) dismiss(*library, false);
    give_back_host_things();
    keep_for_good(leases_);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for the words
  }
  if (gated() != nullptr) gated()->close();  // nothing of this is asked any more
}

LeaseState TenantImpl::report_status(CUresult status, int device) noexcept {
  Lease* lease = current(device);
  if (lease == nullptr) return LeaseState::lost;
  // Nothing else that the code may get wrong says anything about the lease.
  if (is_process_fault(status) || status == CUDA_ERROR_CONTEXT_IS_DESTROYED)
    lease->report_status(status);
  return lease->state();
}

void TenantImpl::set_loss_callback(LossCallback callback) {
  const std::lock_guard lock(mutex_);
  std::swap(options_.on_loss, callback);  // the old one ends without the lock: it may own things
}

bool TenantImpl::is_anybody_inside() const noexcept {
  const std::lock_guard lock(mutex_);
  return std::any_of(leases_.begin(), leases_.end(),
                     [](const auto& lease) { return lease->users().inside() > 0; });
}

void TenantImpl::report_losses() {
  std::unique_lock copying(mutex_);
  const LossCallback on_loss = options_.on_loss;
  copying.unlock();
  if (!on_loss) return;
  const auto next = [&]() -> std::shared_ptr<Lease> {
    const std::lock_guard lock(mutex_);
    // Its leases end, and are not lost.
    if (closed_ || closing_by_ != std::thread::id()) return nullptr;
    for (const auto& lease : leases_) {
      if (lease->state() == LeaseState::ready) continue;
      if (reported_losses_.insert(lease->generation()).second) return lease;
    }
    return nullptr;
  };
  while (const auto lost = next()) on_loss(describe_loss(*lost));
}

std::shared_ptr<Lease> TenantImpl::renew(int device) {
  const Driver& driver = broker_.driver();  // throws when there is none
  const BesideCaptures outside(driver.table);
  end_lost_contexts();  // what they hold may be wanted now
  LeaseRequest request;
  request.device = device;
  // No policy for plug-ins is meant for the host itself.
  const LeaseOrder order = identity_->id == host_tenant
                               ? LeaseOrder{options_.lease, "the host"}
                               : lease_order(options_.lease, broker_.policy(), {identity_->name});
  request.asked = order.choice;
  if (!order.by.empty()) request.asked_by = order.by;
  if (options_.per_thread_streams) request.per_thread_stream = identity_->name;
  request.one_context = true;
  {
    const std::lock_guard lock(mutex_);
    check_open();
  }
  auto lease = broker_.leases().get(identity_, request);  // the driver may take its time
  const std::lock_guard lock(mutex_);
  check_open();
  // While it closes, only code that ends with it gets in, on the thread that closes it.
  if (closing_by_ != std::thread::id()) lease->users().close();
  if (std::find(leases_.begin(), leases_.end(), lease) == leases_.end()) leases_.push_back(lease);
  by_device_[static_cast<std::size_t>(device)].current.store(lease.get(),
                                                             std::memory_order_release);
  return lease;
}

void TenantImpl::check_open() const {
  if (closed_ || (closing_by_ != std::thread::id() && closing_by_ != std::this_thread::get_id())) {
    throw Error(ErrorKind::wrong_state, "the tenant is closed", {.tenant = identity_->name});
  }
}

Lease& TenantImpl::lease_after_refusal(Lease& refused, CUresult status) {
  if (status == CUDA_ERROR_INVALID_CONTEXT && !refused.lost()) {
    const std::lock_guard lock(mutex_);  // close holds it until it has decided
    check_open();
    if (refused.users().is_open()) return refused;
  }
  if (refused.lost()) return lease(refused.device_ordinal());
  refused.report_status(status);
  throw refused.entry_error(status, "the lease cannot be entered");
}

// The context of a lost lease can end at any moment, unless somebody owns the lease.
std::shared_ptr<Lease> TenantImpl::owned(int device) {
  for (;;) {
    const Lease& current = lease(device);
    const std::lock_guard lock(mutex_);
    for (const auto& lease : leases_) {
      if (lease.get() == &current && !lease->ended_early()) return lease;
    }
  }
}

CUdeviceptr TenantImpl::allocate(std::uint64_t bytes, int device) {
  if (bytes == 0) throw Error(ErrorKind::invalid_argument, "allocate: bytes is 0");
  const std::shared_ptr<Lease> lease = owned(device);
  const RealtimeWork work(*identity_, realtime_call("allocate"), lease->kind());
  DeviceMemory memory = make_device_memory(lease, bytes);
  const std::lock_guard lock(mutex_);
  check_open();
  identity_->memory.take(bytes);
  return record(std::move(memory), bytes, holder(), &identity_->memory);
}

namespace {

const char* ending_call(const Holding& held) noexcept {
  switch (held.kind) {
    case Kind::stream:
      return "cuStreamDestroy_v2";
    case Kind::mapping:
      return "cuMemUnmap";
    case Kind::ipc_memory:
      return "cuIpcCloseMemHandle";
    default:
      return held.store != nullptr ? "cuMemFreeAsync" : "cuMemFree_v2";
  }
}

// Throws Error if the driver has refused to end it.
void check_ended(const Holding& held, const Released& released) {
  if (!released.is_still_held) return;
  throw driver_error(held.lease->table(), released.status, ending_call(held),
                     std::string("the driver did not end the ") + to_string(held.kind) +
                         ", which the tenant still holds",
                     held.lease->owner());
}

}  // namespace

void TenantImpl::release(CUdeviceptr address) {
  if (address == 0) return;
  for (const Kind kind : {Kind::memory, Kind::mapping, Kind::ipc_memory}) {
    const auto held = ledger().find(kind, address, holder());
    if (!held) continue;
    const RealtimeWork work(*identity_, realtime_call("release"), held->lease->kind());
    std::unique_lock lock(mutex_);
    const Leases leases = leases_;
    lock.unlock();  // what follows may wait
    wait_for_other_devices(leases, held->lease->device_ordinal());
    if (const auto released = detail::release(holder(), kind, address)) {
      return check_ended(*held, *released);
    }
  }
  throw Error(ErrorKind::invalid_argument,
              "release: address " + std::to_string(address) + " is not held by " + identity_->name,
              {.tenant = identity_->name});
}

SharedMemory TenantImpl::record_shared(const std::shared_ptr<Lease>& lease,
                                       const SharedMemory& memory, Budget* budget) {
  const std::lock_guard lock(mutex_);
  try {
    check_open();
  } catch (...) {
    guarded(lease->target(), {}, [&] { return end_shared_memory(lease->table(), memory); });
    throw;
  }
  if (budget != nullptr) budget->take(memory.bytes);
  record(memory, lease, holder(), budget);
  return memory;
}

SharedMemory TenantImpl::allocate_shareable(std::uint64_t bytes, int device) {
  if (bytes == 0) throw Error(ErrorKind::invalid_argument, "shareable: bytes is 0");
  const std::shared_ptr<Lease> lease = owned(device);
  const RealtimeWork work(*identity_, realtime_call("allocate"), lease->kind());
  return record_shared(lease, make_shared_memory(lease, bytes), &identity_->memory);
}

SharedMemory TenantImpl::import_memory(int descriptor, std::uint64_t bytes, int device) {
  if (bytes == 0) throw Error(ErrorKind::invalid_argument, "imported: bytes is 0");
  const std::shared_ptr<Lease> lease = owned(device);
  return record_shared(lease, import_shared_memory(lease, descriptor, bytes), nullptr);
}

ExportedMemory TenantImpl::export_memory(CUdeviceptr address) {
  if (is_closed()) throw Error(ErrorKind::wrong_state, "the tenant is closed");
  for (const auto how : {SharedMemory::How::mapped, SharedMemory::How::allocated}) {
    const bool is_mapped = how == SharedMemory::How::mapped;
    const auto held = ledger().find(is_mapped ? Kind::mapping : Kind::memory, address, holder());
    if (!held || held->budget == nullptr || held->extent == 0) continue;
    const int device = held->lease->device_ordinal();
    if (!is_mapped && held->lease->lost()) {
      throw Error(ErrorKind::context_lost,
                  "export_descriptor: the memory has ended with its lease; allocate it anew",
                  {.device = device, .tenant = identity_->name});
    }
    return {
        export_shared_memory(is_mapped ? owned(device) : held->lease, {address, held->extent, how}),
        device};
  }
  throw Error(ErrorKind::invalid_argument,
              "export_descriptor: address " + std::to_string(address) + " is no memory that " +
                  identity_->name + " has allocated to be shared",
              {.tenant = identity_->name});
}

CUstream TenantImpl::create_stream(int device) {
  Stream stream = detail::create_stream(owned(device));
  const std::lock_guard lock(mutex_);
  check_open();
  return record(std::move(stream), holder());
}

void TenantImpl::destroy_stream(CUstream stream) {
  const auto handle = reinterpret_cast<std::uint64_t>(stream);
  if (const auto held = ledger().find(Kind::stream, handle, holder())) {
    if (const auto released = detail::release(holder(), Kind::stream, handle)) {
      return check_ended(*held, *released);
    }
  }
  throw Error(ErrorKind::invalid_argument,
              "destroy_stream: the stream is not held by " + identity_->name,
              {.tenant = identity_->name});
}

void TenantImpl::enable_peer_access(int device, int peer) {
  const std::shared_ptr<Lease> here = owned(device), there = owned(peer);
  const Driver& driver = here->driver();
  const auto handle = [&](int ordinal) {
    return driver.handles[static_cast<std::size_t>(ordinal)];
  };
  int can = 0;
  const CUresult asked =
      device == peer ? CUDA_ERROR_INVALID_DEVICE
                     : driver.table.device_can_access_peer(&can, handle(device), handle(peer));
  if (asked != CUDA_SUCCESS || can == 0) {
    throw Error(ErrorKind::lease_unavailable,
                "kernels on device " + std::to_string(device) + " cannot use memory of device " +
                    std::to_string(peer) + "; copy it (cuMemcpyPeerAsync)",
                {.device = device, .tenant = identity_->name});
  }
  TranslatedLease from, to;
  const bool counted = gated() != nullptr && here->kind() != LeaseKind::private_own &&
                       gated()->lease(device, &from) == CUDA_SUCCESS &&
                       gated()->lease(peer, &to) == CUDA_SUCCESS;
  const CUresult status = here->report_status(guarded(here->target(), {}, [&] {
    return there->open_stores(
        handle(device), counted ? detail::enable_peer_access(*gated(), from, to, 0)
                                : driver.table.ctx_enable_peer_access(there->memory_context(), 0));
  }));
  if (status == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return;
  if (status == no_slot) throw here->entry_error(status, "peer access cannot be enabled");
  check(driver.table, status, "cuCtxEnablePeerAccess", here->owner(),
        [] { return "peer access cannot be enabled"; });
}

}  // namespace ctxbroker::detail
