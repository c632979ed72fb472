// SPDX-License-Identifier: Apache-2.0
// TenantImpl: its leases, as the gate asks for them.
#include <algorithm>

#include "ctxbroker/error.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker::detail {

std::shared_ptr<Lease> TenantImpl::find(const std::function<bool(const Lease&)>& matches) noexcept {
  for (int device = 0; device < device_count(); ++device) {
    auto lease = current_lease(device);
    if (lease != nullptr && matches(*lease)) return lease;
  }
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(leases_.rbegin(), leases_.rend(),
                                  [&](const auto& lease) { return matches(*lease); });
  return found != leases_.rend() ? *found : nullptr;
}

std::shared_ptr<Lease> TenantImpl::current_lease(int device) noexcept {
  return broker_.leases().find(identity_->id, device);
}

UsedDevice& TenantImpl::device(int ordinal) noexcept {
  return broker_.leases().device(ordinal);
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

}  // namespace ctxbroker::detail
