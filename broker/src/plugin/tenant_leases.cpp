// TenantImpl: its leases, as the gate asks for them.
#include <algorithm>

#include "ctxbroker/error.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker::detail {

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
  return !closed_ && std::any_of(lives_.begin(), lives_.end(),
                                 [](const auto& life) { return life->users().entered() != 0; });
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
  if (hold.fault().happened() || hold.primary_generation() != note.primary_generation) {
    return std::nullopt;
  }
  return GuardTarget{&broker_.driver().table, hold.primary(), note.primary_generation, nullptr};
}

Waiting TenantImpl::waiting(CUcontext context) noexcept {
  const auto life = find_life(has_this_context, context);
  if (life == nullptr) return {};
  // A green context is waited for alone.
  const bool meets_hung =
      life->family()->any() && (life->kind() != LeaseKind::green || life->is_hung());
  return {life->family(),
          {&life->table(), life->context(), life->generation(), nullptr},
          life->kind() == LeaseKind::shared,
          meets_hung};
}

std::optional<CUresult> TenantImpl::end(const LifeNote& note, Lease::Thing thing) noexcept {
  if (const auto life = find_life(has_this_generation, &note.generation)) {
    return life->give_back(std::move(thing));
  }
  const auto where = end_target(note, thing.home);
  if (!where) {
    if (thing.after) thing.after(Lease::gone);
    return Lease::gone;
  }
  DeviceHold& hold = broker_.leases().device(note.device);
  try {
    const auto elsewhere = identity_->hung.on_other_device(note.device);
    EndRequest ending{identity_,   thing.what, thing.bytes, thing.may_wait,
                      thing.quiet, {},         thing.after};
    ending.perform = [&hold, where = *where, call = thing.call] {
      if (!hold.primary_lives(where.generation)) return Lease::gone;
      return call_in(*where.driver, where.context, call);
    };
    const auto status = (elsewhere != nullptr ? elsewhere : hold.family())->end(std::move(ending));
    if (status && thing.after) thing.after(*status);
    return status;
  } catch (...) {  // out of memory: it stays
    return std::nullopt;
  }
}

}  // namespace ctxbroker::detail
