// SPDX-License-Identifier: Apache-2.0
#include "plugin/tenant_impl.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <list>
#include <utility>

#include "context/open_captures.hpp"
#include "ctxbroker/error.hpp"
#include "driver/driver_error.hpp"
#include "gate/code_map.hpp"
#include "gate/tenant_imports.hpp"
#include "ledger/give_back.hpp"
#include "observe/crash_report.hpp"
#include "observe/running.hpp"
#include "observe/span.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/left_in_library.hpp"
#include "plugin/left_in_threads.hpp"
#include "plugin/library_file.hpp"
#include "plugin/loss.hpp"
#include "plugin/needed_files.hpp"
#include "plugin/shared_variables.hpp"

namespace ctxbroker::detail {

TenantImpl::TenantImpl(BrokerImpl& broker, std::shared_ptr<const TenantIdentity> identity,
                       TenantOptions options)
    : broker_(broker),
      identity_(std::move(identity)),
      options_(std::move(options)),
      by_device_(broker.has_driver() ? broker.driver().devices.size() : 0) {
  if (identity_->id == host_tenant) return;
  if (broker.gate().mode != GateMode::none) {
    gated_tenant(identity_).open(*this, identity_);
  }
  know_plugins({identity_->name});
}

void TenantImpl::know_plugins(const std::vector<std::string>& ids) {
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

std::shared_ptr<LibraryImage> TenantImpl::adopt(const std::filesystem::path& canonical,
                                                const AdoptOptions& options) {
  if (const ClaimedLibraries* const claims = broker_.claims()) {
    if (const LibraryPattern* const taken = claims->taken_by(canonical, identity_->name)) {
      throw Error(ErrorKind::plugin_load,
                  "\"" + canonical.string() + "\" is tenant " + taken->tenant +
                      "'s, by the policy's pattern \"" + taken->match +
                      "\"; adopt it for that tenant, or change the pattern",
                  {.tenant = identity_->name});
    }
  }
  auto image = std::make_shared<LibraryImage>();
  image->path = canonical;
  if (broker_.files().find(canonical).is_replaced) {
    identity_->log(Severity::warning, "plugin", replaced_text(canonical));
  }
  std::string hint;
  for (const std::string& text : find_other_versions(canonical)) {
    identity_->log(Severity::warning, "plugin", text);
    hint += "; " + text;
  }
  {
    std::optional<CodeChange> change;
    if (gated() != nullptr) change.emplace(*gated(), CodeChange::Way::arrives, canonical.native());
    const ContextGuard guard(broker_.nowhere(), {identity_.get(), nullptr, "dlopen"});
    const ScopedSpan span(SpanCategory::load, "dlopen", identity_->name.c_str(), identity_->id);
    const RunningNote note(nullptr, lasting(canonical.native()), "dlopen");
    image->library = load_library(canonical, options, identity_.get(), hint, [&] {
      if (change) change->end();
    });
  }
  say_replaced_handlers(*identity_);
  image->code = extent_at(address_in(image->library.native()));
  add_library_code(image->code.begin, image->code.end, lasting(canonical.native()));
  if (gated() != nullptr) {
    open_left_code(address_in(image->library.native()));
    take_code(*image);
  }
  say_shared_variables(*image);
  const std::lock_guard lock(mutex_);
  libraries_.push_back(image);
  return image;
}

void TenantImpl::say_shared_variables(const LibraryImage& image) {
  std::vector<Extent> own = gated() != nullptr ? code_of(*gated()) : std::vector<Extent>();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : libraries_) own.push_back(one->code);
  }
  for (const std::string& text : find_shared_variables(image.code, own)) {
    identity_->log(Severity::warning, "plugin", image.path.string() + " " + text);
  }
}

// The library may be one that an earlier tenant left in the process: its GatedTenant is opened
// again. That is the main one from now on, unless this tenant has code or things of its own
// already.
void TenantImpl::open_left_code(const void* code) {
  GatedTenant* const left = owner_of_code(code).tenant;
  if (left == nullptr || left->is_open()) return;
  GatedTenant& own = *gated();
  const bool has_own = !code_of(own).empty() || own.primary_retains() != 0 ||
                       !ledger().held_by(own.holder()).empty();
  own.open_beside(*left);
  if (has_own) return;
  for (const LimitRow& row : limit_rows()) {
    left->limits().of(row.limit).set_limit(own.limits().of(row.limit).limit());
  }
  own.give_way_to(*left);
  identity_->gated.store(left, std::memory_order_release);
}

// The library may have been in the process before, as the host's or as something that another
// library needs.
void TenantImpl::take_code(const LibraryImage& image) {
  const CodeClaim claim = claim_code(*gated(), address_in(image.library.native()));
  lead_imports(*gated());
  const auto say = [&](Severity severity, const std::string& text) {
    identity_->log(severity, "gate", image.path.string() + text);
  };
  switch (claim.result) {
    case ClaimResult::own:
      return;
    case ClaimResult::taken:
      if (const std::size_t kept = count_kept_functions(claim.code); kept != 0) {
        say(Severity::warning,
            " was in the process before it was adopted, and has kept " +
                (kept == 1 ? "the address of a driver function"
                           : "the addresses of " + std::to_string(kept) + " driver functions") +
                ", as a runtime library does at its first call: the "
                "gate, which came after the driver, does not hold calls through that. It holds "
                "its other calls from now on. Adopt the library before its first CUDA call, or "
                "link the program with ctxbroker::broker");
        return;
      }
      say(Severity::info,
          " was in the process before it was adopted; from now on it is the tenant's. What it made "
          "with CUDA before stays the host's");
      return;
    case ClaimResult::shared:
      say(Severity::warning,
          " is used by " +
              (claim.other != nullptr ? "tenant " + claim.other->identity().name
                                      : std::string("another tenant")) +
              " too, so it belongs to neither: inside a guard its calls are the guarded tenant's, "
              "and on its own threads they are the host's. Give each tenant a copy of the file "
              "under a SONAME of its own, or load one of the two in a worker");
      return;
    case ClaimResult::claimed:
      say(Severity::warning, " is tenant " + claim.other->identity().name +
                                 "'s, by a pattern of another broker's policy, and stays so");
      return;
    case ClaimResult::common:
      say(Severity::warning,
          " serves the whole process and belongs to no tenant: its calls are those of the code "
          "that calls it");
      return;
  }
}

// The library, and those that came with it and may leave with it.
std::vector<Extent> TenantImpl::code_that_may_leave(const LibraryImage& library) {
  std::vector<Extent> all{library.code};
  if (gated() != nullptr) {
    for (const Extent& one : code_of(*gated())) {
      if (one != library.code) all.push_back(one);
    }
  }
  return all;
}

bool TenantImpl::report_what_is_left(const LibraryImage& library) {
  for (const Extent& code : code_that_may_leave(library)) {
    const Left left = what_is_left_in(code);
    if (left.text.empty()) continue;
    Dl_info where{};
    const bool is_known = dladdr(reinterpret_cast<const void*>(code.begin), &where) != 0;
    const std::string text = "left something behind in " +
                             (is_known ? where.dli_fname : library.path.string()) + ": " +
                             left.text + "; " + library.path.string() + " stays in the process";
    if (left.is_breach) {
      strike(*identity_, nullptr, "dlclose", text.c_str());
    } else {
      identity_->log(Severity::warning, "tenant",
                     library.path.string() + " stays in the process, because " + left.text);
    }
    return true;
  }
  return false;
}

void TenantImpl::dismiss(LibraryImage& library, bool unload) noexcept {
  if (!library.library.is_loaded()) return;
  // A library that has run may have registered callbacks, threads, thread-local values: it stays
  // mapped unless it says that it can go. What is enqueued may call its functions, too.
  std::optional<LeavingKeys> keys;
  try {
    std::string caller = unload ? what_may_call_code() : "";
    if (unload && caller.empty() && report_what_is_left(library)) unload = false;
    if (unload && caller.empty()) keys.emplace(code_that_may_leave(library));
    if (keys && keys->are_in_use()) {
      caller = "a thread that ends may be in a destructor of it (pthread_key_create)";
    }
    if (!caller.empty()) {
      unload = false;
      identity_->log(Severity::warning, "tenant",
                     library.path.string() + " stays in the process, because " + caller);
    }
  } catch (...) {
    unload = false;
  }
  if (!unload) {
    keep_resident(library.path);
    resident_ = true;
  }
  std::optional<CodeChange> change;
  try {
    if (gated() != nullptr && unload)
      change.emplace(*gated(), CodeChange::Way::leaves, library.path.native());
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: its addresses stay booked
  }
  const ContextGuard guard(broker_.nowhere(), {identity_.get(), nullptr, "dlclose"});
  const ScopedSpan span(SpanCategory::load, "dlclose", identity_->name.c_str(), identity_->id);
  const RunningNote note(nullptr, lasting(library.path.native()), "dlclose");
  if (!unload_library(library.library, library.path, identity_.get()) && unload) {
    identity_->log(Severity::warning, "tenant", [&] {
      return "somebody has closed " + library.path.string() +
             " more often than they opened it; it stayed in the process until now all the same";
    });
  }
  // Another tenant's handle, or the process, may keep it.
  if (unload && extent_at(reinterpret_cast<const void*>(library.code.begin)) != library.code) {
    remove_library_code(library.code.begin);
    if (const int left = keys ? keys->delete_left() : 0; left > 0) {
      char text[512];
      std::snprintf(text, sizeof text,
                    "left %d key(s) of pthread_key_create that lead into %s; they were deleted",
                    left, library.path.c_str());
      strike(*identity_, nullptr, "dlclose", text);
    }
  }
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
  DeviceMemory memory = make_device_memory(owned(device), bytes);
  const std::lock_guard lock(mutex_);
  check_open();
  identity_->memory.take(bytes);
  return record(std::move(memory), bytes, holder(), &identity_->memory);
}

void TenantImpl::release(CUdeviceptr address) {
  if (address == 0) return;
  for (const Kind kind : {Kind::memory, Kind::mapping, Kind::ipc_memory}) {
    const auto held = ledger().find(kind, address, holder());
    if (!held) continue;
    std::unique_lock lock(mutex_);
    const Leases leases = leases_;
    lock.unlock();  // what follows may wait
    wait_for_other_devices(leases, held->lease->device_ordinal());
    if (detail::release(holder(), kind, address)) return;
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
    if (!held || held->budget == nullptr || held->extent == 0 || held->given_up) continue;
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
  if (detail::release(holder(), Kind::stream, reinterpret_cast<std::uint64_t>(stream))) return;
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
    return counted ? detail::enable_peer_access(*gated(), from, to, 0)
                   : driver.table.ctx_enable_peer_access(there->memory_context(), 0);
  }));
  if (status == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return;
  if (status == no_slot) throw here->entry_error(status, "peer access cannot be enabled");
  check(driver.table, status, "cuCtxEnablePeerAccess", here->owner(),
        [] { return "peer access cannot be enabled"; });
}

}  // namespace ctxbroker::detail
