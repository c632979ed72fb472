#include "plugin/tenant_impl.hpp"

#include <utility>

#include "context/wait.hpp"
#include "ctxbroker/error.hpp"
#include "observe/span.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/library_file.hpp"

namespace ctxbroker::detail {

TenantImpl::TenantImpl(BrokerImpl& broker, std::shared_ptr<const TenantIdentity> identity,
                       TenantOptions options)
    : broker_(broker),
      identity_(std::move(identity)),
      options_(options),
      slots_(broker.has_driver() ? broker.driver().devices.size() : 0) {}

TenantImpl::~TenantImpl() {
  try {
    close();
  } catch (const Error& error) {
    // A thread that is inside goes on using the context: it stays until the process ends.
    identity_->say(Severity::error, "tenant", error.what());
    for (const auto& life : lives_) life->bury();
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for the words
  }
}

std::shared_ptr<LibraryImage> TenantImpl::adopt(const std::filesystem::path& canonical) {
  auto image = std::make_shared<LibraryImage>();
  image->path = canonical;
  {
    const ContextGuard guard(broker_.nowhere(), {identity_.get(), nullptr, "dlopen"});
    const ScopedSpan span(SpanCategory::load, "dlopen", identity_->name.c_str(), identity_->id);
    image->library = load_library(canonical);
  }
  const std::lock_guard lock(mutex_);
  libraries_.push_back(image);
  return image;
}

void TenantImpl::dismiss(LibraryImage& library, bool unload) noexcept {
  if (!library.library.is_loaded()) return;
  // A library that has run may have registered callbacks, threads, thread-local values: it stays
  // mapped unless it says that it can go.
  if (!unload) keep_resident(library.path);
  const ContextGuard guard(broker_.nowhere(), {identity_.get(), nullptr, "dlclose"});
  const ScopedSpan span(SpanCategory::load, "dlclose", identity_->name.c_str(), identity_->id);
  library.library.unload();
}

LeaseState TenantImpl::note(CUresult status, int device) noexcept {
  Lease* lease = current(device);
  if (lease == nullptr) return LeaseState::lost;
  // Nothing else that the code may get wrong says anything about the lease.
  if (is_process_fault(status) || status == CUDA_ERROR_CONTEXT_IS_DESTROYED) lease->note(status);
  return lease->state();
}

std::shared_ptr<Lease> TenantImpl::renew(int device) {
  const Driver& driver = broker_.driver();  // throws when there is none
  static_cast<void>(driver);
  LeaseRequest request;
  request.device = device;
  // No policy for plug-ins is meant for the host itself.
  const LeaseOrder order = identity_->id == host_tenant
                               ? LeaseOrder{options_.lease, "the host"}
                               : lease_order(options_.lease, broker_.policy(), {identity_->name});
  request.asked = order.choice;
  if (!order.by.empty()) request.asked_by = order.by;
  if (options_.per_thread_streams) request.per_thread_stream = identity_->name;
  const std::lock_guard lock(mutex_);
  auto lease = broker_.leases().get(identity_, request);
  if (lives_.empty() || lives_.back() != lease) lives_.push_back(lease);
  slots_[static_cast<std::size_t>(device)].current.store(lease.get(), std::memory_order_release);
  return lease;
}

std::shared_ptr<Lease> TenantImpl::owned(int device) {
  const Lease& current = lease(device);
  const std::lock_guard lock(mutex_);
  for (const auto& life : lives_) {
    if (life.get() == &current) return life;
  }
  throw Error(ErrorKind::context_lost, "the lease was lost meanwhile; try again");
}

CUdeviceptr TenantImpl::allocate(std::uint64_t bytes, int device) {
  if (bytes == 0) throw Error(ErrorKind::invalid_argument, "allocate: bytes is 0");
  std::shared_ptr<Lease> lease = owned(device);
  DeviceMemory memory = make_device_memory(lease, bytes);
  const CUdeviceptr address = memory.get();
  const std::lock_guard lock(mutex_);
  lease->holdings().add_bytes(bytes);
  memory_.insert_or_assign(address, Allocation{std::move(memory), bytes, std::move(lease)});
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  return address;
}

void TenantImpl::release(CUdeviceptr address) {
  if (address == 0) return;
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(address);
  if (found == memory_.end()) {
    throw Error(
        ErrorKind::invalid_argument,
        "release: address " + std::to_string(address) + " is not held by " + identity_->name,
        {.tenant = identity_->name});
  }
  bytes_.fetch_sub(found->second.bytes, std::memory_order_relaxed);
  found->second.lease->holdings().remove_bytes(found->second.bytes);
  memory_.erase(found);
}

CUstream TenantImpl::make_stream(int device) {
  Stream stream = detail::make_stream(owned(device));
  CUstream const handle = stream.get();
  const std::lock_guard lock(mutex_);
  streams_.insert_or_assign(handle, std::move(stream));
  return handle;
}

void TenantImpl::end_stream(CUstream stream) {
  const std::lock_guard lock(mutex_);
  if (streams_.erase(stream) == 1) return;
  throw Error(ErrorKind::invalid_argument,
              "end_stream: the stream is not held by " + identity_->name,
              {.tenant = identity_->name});
}

void TenantImpl::enable_peer_access(int device, int peer) {
  Lease& here = lease(device);
  Lease& there = lease(peer);
  const Driver& driver = here.driver();
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
  const CUresult status = here.note(guarded(here.target(), {}, [&] {
    return driver.table.ctx_enable_peer_access(there.memory_context(), 0);
  }));
  if (status == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return;
  check(driver.table, status, "cuCtxEnablePeerAccess", here.owner(),
        [] { return "peer access cannot be enabled"; });
}

// What is enqueued may call functions of the tenant's libraries. False when it does not end.
bool TenantImpl::wait_for_work() noexcept {
  bool idle = true;
  for (const auto& [handle, stream] : streams_) {
    Lease& lease = *stream.lease();
    const auto where = lease.end_target(Home::context);
    if (!where) continue;  // it ended with its context
    const CUresult status = lease.note(guarded(*where, {}, [&, waited = handle] {
      return wait_for(lease.table(), waited, broker_.end_timeout());
    }));
    if (status != CUDA_ERROR_TIMEOUT) continue;
    lease.bury();
    idle = false;
  }
  return idle;
}

void TenantImpl::close() {
  const std::lock_guard lock(mutex_);
  for (const auto& life : lives_) {
    // Other users of the lease, plug-in instances, have their own ends.
    if (life->occupancy().inside() > 0) {
      throw Error(ErrorKind::wrong_state,
                  "tenant " + identity_->name +
                      " cannot be closed while a thread is inside its lease; end its guards first",
                  {.device = life->device_ordinal(), .tenant = identity_->name});
    }
  }
  const bool idle = wait_for_work();
  for (auto library = libraries_.rbegin(); library != libraries_.rend(); ++library) {
    dismiss(**library, options_.unload_at_close && idle);
  }
  libraries_.clear();
  streams_.clear();  // before the memory that their work uses
  for (const auto& [address, one] : memory_) one.lease->holdings().remove_bytes(one.bytes);
  memory_.clear();
  bytes_.store(0, std::memory_order_relaxed);
  for (Slot& slot : slots_) slot.current.store(nullptr, std::memory_order_release);
  lives_.clear();
}

}  // namespace ctxbroker::detail
