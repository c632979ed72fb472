// SPDX-License-Identifier: Apache-2.0
// TenantImpl: its leases, as the gate asks for them.
#include <algorithm>

#include "ctxbroker/error.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker::detail {

template <typename Matches>
std::shared_ptr<Lease> TenantImpl::find_lease(const Matches& matches) noexcept {
  for (int device = 0; device < device_count(); ++device) {
    auto lease = broker_.leases().find(identity_->id, device);
    if (lease != nullptr && matches(*lease)) return lease;
  }
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(leases_.rbegin(), leases_.rend(),
                                  [&](const auto& lease) { return matches(*lease); });
  return found != leases_.rend() ? *found : nullptr;
}

std::shared_ptr<Lease> TenantImpl::lease_with(CUcontext context) noexcept {
  return find_lease(
      [&](const Lease& lease) { return !lease.ended_early() && lease.has_context(context); });
}

std::shared_ptr<Lease> TenantImpl::lease_of(std::uint64_t generation) noexcept {
  return find_lease([&](const Lease& lease) { return lease.generation() == generation; });
}

namespace {

// The status that a driver call of the tenant's would have.
CUresult status_of(const Error& error) noexcept {
  switch (error.kind()) {
    case ErrorKind::no_device:
      return CUDA_ERROR_INVALID_DEVICE;
    case ErrorKind::out_of_memory:
    case ErrorKind::out_of_host_memory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case ErrorKind::system_limit:
      return CUDA_ERROR_OPERATING_SYSTEM;
    default:
      return error.origin().status != 0 ? static_cast<CUresult>(error.origin().status)
                                        : CUDA_ERROR_NOT_PERMITTED;
  }
}

}  // namespace

CUresult TenantImpl::lease(int device, TranslatedLease* captured) noexcept {
  try {
    if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
    const Lease& mine = lease(device);
    *captured = {
        mine.target(),
        mine.kind(),
        mine.borrowers(),
        mine.memory_context(),
        mine.kind() == LeaseKind::private_own ? mine.generation() : mine.primary_generation(),
        mine.is_shielded()};
    return CUDA_SUCCESS;
  } catch (const Error& error) {
    // The end of CUDA was said once, and code may ask again and again.
    if (!broker_.fault().happened()) identity_->log(Severity::error, "lease", error.what());
    return status_of(error);
  } catch (...) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
}

bool TenantImpl::has_been_inside() const noexcept {
  const std::lock_guard lock(mutex_);
  return !closed_ && std::any_of(leases_.begin(), leases_.end(),
                                 [](const auto& lease) { return lease->users().entered() != 0; });
}

bool TenantImpl::has_lease(int device) noexcept {
  const auto lease = broker_.leases().find(identity_->id, device);
  return lease != nullptr && !lease->lost();
}

namespace {

void use(UsedDevice& used) noexcept {
  try {
    used.use();
  } catch (...) {  // NOLINT(bugprone-empty-catch): not in use, then
  }
}

}  // namespace

int TenantImpl::find_device(CUcontext context) noexcept {
  if (const auto lease = lease_with(context)) return lease->device_ordinal();
  for (int device = 0; device < device_count(); ++device) {
    UsedDevice& used = broker_.leases().device(device);
    // The runtime library may have made it a moment ago, by ways that nobody sees.
    if (!used.in_use() && used.primary_is_active()) use(used);
    if (used.in_use() && used.primary() == context) return device;
  }
  return -1;
}

int TenantImpl::find_unused_device(CUcontext context) noexcept {
  for (int device = 0; device < device_count(); ++device) {
    UsedDevice& used = broker_.leases().device(device);
    if (used.in_use()) continue;
    use(used);
    if (used.in_use() && used.primary() == context) return device;
  }
  const auto ended =
      find_lease([&](const Lease& one) { return one.ended_early() && one.has_context(context); });
  return ended != nullptr ? ended->device_ordinal() : -1;
}

// The broker's own work, although a tenant's call asks for it.
bool TenantImpl::relieve(CUcontext context) noexcept {
  const HostFrame frame;
  const int device = find_device(context);
  if (device < 0) return false;
  const auto lease = lease_with(context);
  UsedDevice& used = broker_.leases().device(device);
  return (lease != nullptr ? lease->family() : used.family())->wait_for_put_off() || used.relieve();
}

bool TenantImpl::holds(CUcontext context) noexcept {
  const auto lease = lease_with(context);
  return lease != nullptr && lease->kind() != LeaseKind::shared;  // which is everybody's
}

std::shared_ptr<Lease> TenantImpl::lease_meant(CUcontext context) noexcept {
  if (context == nullptr) return nullptr;
  if (auto lease = lease_with(context)) return lease;
  for (int device = 0; device < device_count(); ++device) {
    const UsedDevice& used = broker_.leases().device(device);
    if (used.in_use() && used.primary() == context) {
      return broker_.leases().find(identity_->id, device);
    }
  }
  return nullptr;
}

std::shared_ptr<Lease> TenantImpl::lease_with_green(CUgreenCtx green) noexcept {
  return find_lease(
      [&](const Lease& lease) { return !lease.ended_early() && lease.has_green(green); });
}

std::shared_ptr<HungWork> TenantImpl::primary_family(int device) noexcept {
  if (device < 0 || device >= device_count()) return nullptr;
  const UsedDevice& used = broker_.leases().device(device);
  return used.in_use() ? used.family() : nullptr;
}

LeaseGeneration TenantImpl::generation_of(CUcontext context) noexcept {
  const auto lease = lease_with(context);
  if (lease == nullptr) return {};
  return {lease->generation(), lease->device_ordinal(), lease->kind(), lease->primary_generation()};
}

std::optional<GuardTarget> TenantImpl::end_target(const LeaseGeneration& made_in,
                                                  Home home) noexcept {
  if (const auto lease = lease_of(made_in.generation)) {
    return lease->end_target(home);
  }
  // That generation has ended, and a private context with all that was made in it.
  if (made_in.kind == LeaseKind::private_own && home != Home::device) return std::nullopt;
  if (made_in.kind == LeaseKind::green && home == Home::context) return std::nullopt;
  UsedDevice& used = broker_.leases().device(made_in.device);
  if (used.fault().happened() || used.primary_generation() != made_in.primary_generation) {
    return std::nullopt;
  }
  return GuardTarget{&broker_.driver().table, used.primary(), made_in.primary_generation, nullptr};
}

Waiting TenantImpl::waiting(CUcontext context) noexcept {
  auto lease = lease_meant(context);
  if (lease == nullptr) return {};
  // A green context is waited for alone.
  const bool meets_hung =
      lease->family()->is_hung() && (lease->kind() != LeaseKind::green || lease->is_hung());
  auto family = lease->family();
  const bool is_shared = lease->kind() == LeaseKind::shared;
  return {std::move(lease), std::move(family), is_shared, meets_hung};
}

std::optional<CUresult> TenantImpl::end(const LeaseGeneration& made_in,
                                        Lease::Thing thing) noexcept {
  if (const auto lease = lease_of(made_in.generation)) {
    return lease->give_back(std::move(thing));
  }
  const auto where = end_target(made_in, thing.home);
  if (!where) {
    if (thing.after) thing.after(Lease::gone);
    return Lease::gone;
  }
  UsedDevice& used = broker_.leases().device(made_in.device);
  try {
    const auto elsewhere = identity_->hung.on_other_device(made_in.device);
    EndRequest ending{identity_,   thing.what, thing.bytes,           thing.may_wait,
                      thing.quiet, {},         std::move(thing.after)};
    ending.perform = [&used, where = *where, call = std::move(thing.call)] {
      if (!used.primary_is_current(where.generation)) return Lease::gone;
      return call_in(*where.driver, where.context, call);
    };
    return (elsewhere != nullptr ? elsewhere : used.family())->end(std::move(ending));
  } catch (...) {  // out of memory: it stays
    return std::nullopt;
  }
}

std::optional<CUresult> TenantImpl::end_own_context(int device, Lease::Thing thing) noexcept {
  const auto family = primary_family(device);
  if (family == nullptr) {  // the broker knows of no work there
    const CUresult status = thing.call();
    if (thing.after) thing.after(status);
    return status;
  }
  try {
    EndRequest ending{identity_,
                      thing.what,
                      thing.bytes,
                      thing.may_wait,
                      thing.quiet,
                      std::move(thing.call),
                      std::move(thing.after),
                      true};
    return family->end(std::move(ending));
  } catch (...) {  // out of memory: it stays
    return std::nullopt;
  }
}

}  // namespace ctxbroker::detail
