// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/device_memory.hpp"

#include <utility>

#include "ctxbroker/error.hpp"
#include "plugin/access.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker {

DeviceMemory::DeviceMemory(Tenant& tenant, std::uint64_t bytes, int device)
    : tenant_(detail::Access::of(tenant)),
      address_(detail::Access::of(tenant)->allocate(bytes, device)),
      bytes_(bytes) {}

DeviceMemory::DeviceMemory(std::weak_ptr<detail::TenantImpl> tenant, std::uint64_t address,
                           std::uint64_t bytes) noexcept
    : tenant_(std::move(tenant)), address_(address), bytes_(bytes) {}

DeviceMemory DeviceMemory::shareable(Tenant& tenant, std::uint64_t bytes, int device) {
  const auto& holder = detail::Access::of(tenant);
  const detail::SharedMemory made = holder->allocate_shareable(bytes, device);
  return {holder, made.address, made.bytes};
}

DeviceMemory DeviceMemory::imported(Tenant& tenant, int descriptor, std::uint64_t bytes,
                                    int device) {
  const auto& holder = detail::Access::of(tenant);
  const detail::SharedMemory made = holder->import_memory(descriptor, bytes, device);
  return {holder, made.address, made.bytes};
}

detail::ExportedMemory detail::Access::exported(const ctxbroker::DeviceMemory& memory) {
  const auto tenant = memory.tenant_.lock();
  if (memory.address_ != 0 && tenant == nullptr) {
    throw Error(ErrorKind::wrong_state, "export_descriptor: the tenant is closed");
  }
  if (tenant == nullptr) {
    throw Error(ErrorKind::invalid_argument, "export_descriptor: the object holds no memory");
  }
  return tenant->export_memory(memory.address_);
}

int DeviceMemory::export_descriptor() const {
  return detail::Access::exported(*this).descriptor;
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : tenant_(std::move(other.tenant_)),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  if (this == &other) return *this;
  reset();
  tenant_ = std::move(other.tenant_);
  address_ = std::exchange(other.address_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void DeviceMemory::reset() noexcept {
  const std::uint64_t address = detach();
  if (address == 0) return;
  try {
    const auto tenant = tenant_.lock();
    if (tenant != nullptr && tenant->broker().is_in_its_process()) tenant->release(address);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the tenant has given it back already
  }
}

std::uint64_t DeviceMemory::detach() noexcept {
  bytes_ = 0;
  return std::exchange(address_, 0);
}

}  // namespace ctxbroker
