#include "plugin/tenant_impl.hpp"

#include <algorithm>
#include <list>
#include <set>
#include <utility>

#include "context/wait.hpp"
#include "ctxbroker/error.hpp"
#include "driver/driver_error.hpp"
#include "gate/code_map.hpp"
#include "gate/give_back.hpp"
#include "gate/kept_primary.hpp"
#include "gate/late_gate.hpp"
#include "gate/open_watch.hpp"
#include "gate/owners.hpp"
#include "gate/peer_access.hpp"
#include "observe/span.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/library_file.hpp"

namespace ctxbroker::detail {

TenantImpl::TenantImpl(BrokerImpl& broker, std::shared_ptr<const TenantIdentity> identity,
                       TenantOptions options)
    : broker_(broker),
      identity_(std::move(identity)),
      options_(options),
      slots_(broker.has_driver() ? broker.driver().devices.size() : 0) {
  if (identity_->id == host_tenant) return;
  if (broker.gate().mode != GateMode::none) {
    gated_ = &gated_tenant(identity_);
    gated_->open(*this);
  }
  know_plugins({identity_->name});
}

void TenantImpl::know_plugins(const std::vector<std::string>& ids) {
  const std::uint64_t budget =
      driver_memory_budget(options_.driver_memory_budget, broker_.policy(), ids);
  if (gated_ != nullptr) {
    gated_->set_budget(budget);
  } else if (budget != 0 && !told_of_budget_) {
    told_of_budget_ = true;
    identity_->say(Severity::warning, "gate",
                   "without the gate nobody counts what the tenant takes from the driver: its "
                   "budget of " +
                       std::to_string(budget) + " bytes is not kept");
  }
}

namespace {

// Guards that outlive their tenant look at the life they are in when they end.
void keep_for_good(std::vector<std::shared_ptr<Lease>>& lives) noexcept {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  try {
    static auto& kept = *new std::list<std::vector<std::shared_ptr<Lease>>>;
    kept.emplace_back().swap(lives);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; then it goes with the tenant
  }
}

}  // namespace

TenantImpl::~TenantImpl() {
  try {
    close();
  } catch (const Error& error) {
    // A thread that is inside goes on using the context: it stays until the process ends.
    identity_->say(Severity::error, "tenant", error.what());
    for (const auto& life : lives_) life->bury();
    keep_for_good(lives_);
    end_epoch();
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for the words
  }
  if (gated_ != nullptr) gated_->close();  // nothing of this is asked any more
}

std::shared_ptr<LibraryImage> TenantImpl::adopt(const std::filesystem::path& canonical) {
  auto image = std::make_shared<LibraryImage>();
  image->path = canonical;
  {
    std::optional<CodeChange> change;
    if (gated_ != nullptr) change.emplace(*gated_, CodeChange::Way::arrives);
    const ContextGuard guard(broker_.nowhere(), {identity_.get(), nullptr, "dlopen"});
    const ScopedSpan span(SpanCategory::load, "dlopen", identity_->name.c_str(), identity_->id);
    image->library = load_library(canonical);
    if (change) change->loaded(image->library.native());
  }
  if (gated_ != nullptr) {
    watch_opens(*gated_);
    lead_to_gate(*gated_, image->library.native());
  }
  const std::lock_guard lock(mutex_);
  libraries_.push_back(image);
  return image;
}

void TenantImpl::dismiss(LibraryImage& library, bool unload) noexcept {
  if (!library.library.is_loaded()) return;
  // A library that has run may have registered callbacks, threads, thread-local values: it stays
  // mapped unless it says that it can go. What is enqueued may call its functions, too.
  unload = unload && !identity_->endless.anywhere();
  if (!unload) {
    keep_resident(library.path);
    resident_ = true;
  }
  std::optional<CodeChange> change;
  try {
    if (gated_ != nullptr && unload) change.emplace(*gated_, CodeChange::Way::leaves);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: its addresses stay booked
  }
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
  end_lost_lives();  // what they hold may be wanted now
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
  const int device = found->second.lease->device_ordinal();
  if (!wait_for_devices_beside(device)) {
    if (kept_.empty()) {
      identity_->say(Severity::warning, "tenant",
                     "memory on device " + std::to_string(device) +
                         " that was released stays until the process ends: work of the tenant on "
                         "another device does not end, and may use it");
    }
    kept_.insert(memory_.extract(found));  // it stays charged
    return;
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
  CapturedLease from, to;
  const bool counted = gated_ != nullptr && here.kind() != LeaseKind::private_own &&
                       gated_->lease(device, &from) == CUDA_SUCCESS &&
                       gated_->lease(peer, &to) == CUDA_SUCCESS;
  const CUresult status = here.note(guarded(here.target(), {}, [&] {
    return counted ? detail::enable_peer_access(*gated_, from, to, 0)
                   : driver.table.ctx_enable_peer_access(there.memory_context(), 0);
  }));
  if (status == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return;
  check(driver.table, status, "cuCtxEnablePeerAccess", here.owner(),
        [] { return "peer access cannot be enabled"; });
}

// Who could hold the handle of a private context, which must not reach the driver once it is gone:
//   - guards, and threads without one that have it current: they are counted;
//   - owners of the lease (activations, streams, memory): this here is the only one;
//   - the tenant's own code, through what it made there: that is in its ledger, if it called
//   nothing
//     past the gate. A runtime library has ways past it, and remembers contexts;
//   - and the context's handle alone: where that is to be made current, it means the next life.
void TenantImpl::end_lost_lives() noexcept {
  if (gated_ == nullptr || broker_.gate().mode != GateMode::before_driver) return;
  const std::lock_guard lock(mutex_);
  if (gated_->has_private_tables()) return;
  for (const auto& life : lives_) {
    if (life.use_count() != 1 || !life->lost() || life->ended_early()) continue;
    life->end_early([&] {
      return !gated_->has_private_tables() && !gated_->holds_anything_of(life->generation());
    });
  }
}

// False when it does not end: then the lease is a zombie.
bool TenantImpl::wait_for(Lease& lease, CUstream stream) noexcept {
  const auto where = lease.end_target(Home::context);
  if (!where) return true;  // it ended with its context
  const CUresult status = guarded(
      *where, {}, [&] { return detail::wait_for(lease.table(), stream, broker_.end_timeout()); });
  // Nothing else that is wrong with a stream of the code's own says anything about the lease.
  if (is_process_fault(status)) lease.note(status);
  if (status != CUDA_ERROR_TIMEOUT) return true;
  lease.bury();
  return false;
}

// What is enqueued may call functions of the tenant's libraries, and what is given back under work
// that does not end would be waited for without end. In streams of the broker's and, where the gate
// knows of them, of the code's own; and in the default streams of contexts that are nobody else's.
bool TenantImpl::wait_for_work() noexcept {
  bool idle = true;
  for (const auto& [handle, stream] : streams_) idle &= wait_for(*stream.lease(), handle);
  for (const auto& life : lives_) {
    if (life->kind() != LeaseKind::shared) idle &= wait_for(*life, nullptr);
  }
  if (gated_ == nullptr) return idle;
  try {
    for (const Holding& held : owners().held_by(identity_->id)) {
      if (held.kind != Kind::stream || held.over) continue;
      for (const auto& life : lives_) {
        if (life->generation() != held.life) continue;
        idle &= wait_for(*life, reinterpret_cast<CUstream>(held.handle));
      }
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; what follows waits, then
  }
  return idle;
}

// The driver frees memory of one device without a look at what another one does with it: a write
// that comes later is a fault, which ends CUDA in the process. False when the tenant's work on the
// others is not known to be done, and will not be: its memory on this one must stay.
bool TenantImpl::wait_for_devices_beside(int device) noexcept {
  if (has_endless_work_beside(device)) return false;
  for (const auto& life : lives_) {
    if (life->device_ordinal() != device) life->synchronize();
  }
  return !has_endless_work_beside(device);  // a neighbour's may have been met meanwhile
}

// Its own; or a neighbour's, behind which nobody can wait for its own.
bool TenantImpl::has_endless_work_beside(int device) const noexcept {
  return identity_->endless.beside(device) ||
         std::any_of(lives_.begin(), lives_.end(), [&](const auto& life) {
           return life->device_ordinal() != device && life->untouchable();
         });
}

namespace {

std::string devices_text(const std::set<int>& devices) {
  if (devices.empty()) return "another device";  // of a life that is no more
  std::string text;
  for (const int device : devices) text += (text.empty() ? "" : ", ") + std::to_string(device);
  return (devices.size() == 1 ? "device " : "devices ") + text;
}

}  // namespace

// All of them: what is stranded is not waited for, and so may use the memory of the others.
void TenantImpl::strand_lives() {
  std::set<int> endless, stranded;
  for (const auto& life : lives_) {
    (life->untouchable() ? endless : stranded).insert(life->device_ordinal());
  }
  for (const auto& life : lives_) {
    if (!life->untouchable()) life->strand();
  }
  if (stranded.empty()) return;
  identity_->say(
      Severity::warning, "tenant",
      "work on " + devices_text(endless) +
          " does not end, or is behind such work, and may use the tenant's memory on " +
          devices_text(stranded) +
          ": its lease there is stranded, and what is in it stays until the process ends");
}

void TenantImpl::close() {
  std::vector<std::shared_ptr<LibraryImage>> libraries;
  bool idle = true;
  {
    const std::lock_guard lock(mutex_);
    refuse_while_inside();
    idle = wait_for_work();
    const bool done = std::all_of(lives_.begin(), lives_.end(), [&](const auto& life) {
      return wait_for_devices_beside(life->device_ordinal());
    });
    if (!done) strand_lives();
    idle = idle && done;
    libraries.swap(libraries_);
  }
  // Not under the lock: destructors of the library may ask the gate for a lease.
  for (auto library = libraries.rbegin(); library != libraries.rend(); ++library) {
    dismiss(**library, options_.unload_at_close && idle);
  }
  give_back_what_is_left();
  const std::lock_guard lock(mutex_);
  streams_.clear();  // before the memory that their work uses
  for (const auto& [address, one] : memory_) {
    if (!one.lease->keeps_all()) one.lease->holdings().remove_bytes(one.bytes);
  }
  memory_.clear();
  kept_.clear();  // their lives are stranded
  bytes_.store(0, std::memory_order_relaxed);
  for (Slot& slot : slots_) slot.current.store(nullptr, std::memory_order_release);
  end_epoch();  // threads remember where they were
  lives_.clear();
}

void TenantImpl::refuse_while_inside() const {
  for (const auto& life : lives_) {
    // Other users of the lease, plug-in instances, have their own ends.
    if (life->occupancy().inside() > 0) {
      throw Error(ErrorKind::wrong_state,
                  "tenant " + identity_->name +
                      " cannot be closed while a thread is inside its lease; end its guards first",
                  {.device = life->device_ordinal(), .tenant = identity_->name});
    }
  }
}

// The runtime library in code that stays goes on using the primaries that it has met.
void TenantImpl::keep_primaries() {
  for (int device = 0; device < device_count(); ++device) {
    if (!gated_->has_worked_on(device)) continue;
    const Driver& driver = broker_.driver();
    const CUresult status =
        keep_primary(driver.table, driver.handles[static_cast<std::size_t>(device)]);
    if (status != CUDA_SUCCESS) {
      identity_->say(Severity::warning, "tenant",
                     "the primary context cannot be kept for code that stays in the process: " +
                         status_text(driver.table, status));
    }
  }
}

// What its code made through the driver, and forgot.
void TenantImpl::give_back_what_is_left() noexcept {
  if (gated_ == nullptr) return;
  try {
    if (resident_ && gated_->has_private_tables()) keep_primaries();
    const GivenBack given = give_back_holdings(*gated_, resident_);
    if (given.count != 0) {
      identity_->say(Severity::warning, "ledger", "gave back what the tenant left: " + given.what);
    }
    if (!given.of_code.empty()) {
      identity_->say(Severity::info, "ledger",
                     "stays with the tenant's code, which stays in the process: " + given.of_code);
    }
    if (given.status != CUDA_SUCCESS) {
      identity_->say(Severity::warning, "ledger",
                     "something that the tenant left could not be given back: " +
                         status_text(broker_.driver().table, given.status));
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; the driver's end frees it
  }
  gated_->close();
}

std::shared_ptr<Lease> TenantImpl::find_life(bool (*matches)(const Lease&, const void*),
                                             const void* wanted) noexcept {
  for (int device = 0; device < device_count(); ++device) {
    auto lease = broker_.leases().find(identity_->id, device);
    if (lease != nullptr && matches(*lease, wanted)) return lease;
  }
  const std::lock_guard lock(mutex_);
  for (auto life = lives_.rbegin(); life != lives_.rend(); ++life) {
    if (matches(**life, wanted)) return *life;
  }
  return nullptr;
}

namespace {

bool has_this_context(const Lease& lease, const void* context) {
  return !lease.ended_early() &&
         lease.has_context(static_cast<CUcontext>(const_cast<void*>(context)));
}

bool had_this_context(const Lease& lease, const void* context) {
  return lease.ended_early() &&
         lease.has_context(static_cast<CUcontext>(const_cast<void*>(context)));
}

bool has_this_generation(const Lease& lease, const void* generation) {
  return lease.generation() == *static_cast<const std::uint64_t*>(generation);
}

// The status that a driver call of the tenant's would have.
CUresult status_of(const Error& error) noexcept {
  switch (error.kind()) {
    case ErrorKind::no_device:
      return CUDA_ERROR_INVALID_DEVICE;
    case ErrorKind::out_of_memory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    default:
      return error.origin().status != 0 ? static_cast<CUresult>(error.origin().status)
                                        : CUDA_ERROR_NOT_PERMITTED;
  }
}

}  // namespace

CUresult TenantImpl::lease(int device, CapturedLease* captured) noexcept {
  try {
    if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
    const Lease& mine = lease(device);
    *captured = {
        mine.target(), mine.kind(), mine.borrowers(), mine.memory_context(),
        mine.kind() == LeaseKind::private_own ? mine.generation() : mine.primary_generation()};
    return CUDA_SUCCESS;
  } catch (const Error& error) {
    identity_->say(Severity::error, "lease", error.what());
    return status_of(error);
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

bool TenantImpl::has_been_inside() const noexcept {
  const std::lock_guard lock(mutex_);
  return std::any_of(lives_.begin(), lives_.end(), [](const auto& life) {
    return life->occupancy().entered() != 0 || life->occupancy().inside() != 0;
  });
}

bool TenantImpl::has_lease(int device) noexcept {
  const auto lease = broker_.leases().find(identity_->id, device);
  return lease != nullptr && !lease->lost();
}

namespace {

void use(DeviceHold& hold) noexcept {
  try {
    hold.use();
  } catch (...) {  // NOLINT(bugprone-empty-catch): not in use, then
  }
}

}  // namespace

int TenantImpl::device_of(CUcontext context) noexcept {
  if (const auto life = find_life(has_this_context, context)) return life->device_ordinal();
  for (int device = 0; device < device_count(); ++device) {
    DeviceHold& hold = broker_.leases().device(device);
    // The runtime library may have made it a moment ago, by ways that nobody sees.
    if (!hold.in_use() && hold.primary_is_active()) use(hold);
    if (hold.in_use() && hold.primary() == context) return device;
  }
  return -1;
}

int TenantImpl::unused_device_of(CUcontext context) noexcept {
  for (int device = 0; device < device_count(); ++device) {
    DeviceHold& hold = broker_.leases().device(device);
    if (hold.in_use()) continue;
    use(hold);
    if (hold.in_use() && hold.primary() == context) return device;
  }
  return -1;
}

int TenantImpl::device_of_ended(CUcontext context) noexcept {
  const auto life = find_life(had_this_context, context);
  return life != nullptr ? life->device_ordinal() : -1;
}

// The broker's own work, although a call of the tenant's asks for it.
bool TenantImpl::relieve(CUcontext context) noexcept {
  const HostFrame frame;
  const int device = device_of(context);
  return device >= 0 && broker_.leases().device(device).relieve();
}

bool TenantImpl::holds(CUcontext context) noexcept {
  const auto life = find_life(has_this_context, context);
  return life != nullptr && life->kind() != LeaseKind::shared;  // which is everybody's
}

LifeNote TenantImpl::life_of(CUcontext context) noexcept {
  const auto life = find_life(has_this_context, context);
  if (life == nullptr) return {};
  return {life->generation(), life->device_ordinal(), life->kind(), life->primary_generation()};
}

std::optional<GuardTarget> TenantImpl::end_target(const LifeNote& note, Home home) noexcept {
  if (const auto life = find_life(has_this_generation, &note.generation)) {
    return life->end_target(home);
  }
  // That life has ended, and a private context with all that was made in it.
  if (note.kind == LeaseKind::private_own && home != Home::device) return std::nullopt;
  if (note.kind == LeaseKind::green && home == Home::context) return std::nullopt;
  DeviceHold& hold = broker_.leases().device(note.device);
  if (hold.fault().happened() || hold.is_stuck()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (has_endless_work_beside(note.device)) {
    hold.keep_primary();
    return std::nullopt;
  }
  if (hold.primary_generation() != note.primary_generation) return std::nullopt;
  return GuardTarget{&broker_.driver().table, hold.primary(), note.primary_generation, nullptr};
}

}  // namespace ctxbroker::detail
