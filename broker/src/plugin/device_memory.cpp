// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/device_memory.hpp"

#include <utility>

#include "plugin/access.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker {

DeviceMemory::DeviceMemory(Tenant& tenant, std::uint64_t bytes, int device)
    : tenant_(detail::Access::of(tenant)),
      address_(detail::Access::of(tenant)->allocate(bytes, device)),
      bytes_(bytes) {}

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
    if (const auto tenant = tenant_.lock()) tenant->release(address);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the tenant has given it back already
  }
}

std::uint64_t DeviceMemory::detach() noexcept {
  bytes_ = 0;
  return std::exchange(address_, 0);
}

}  // namespace ctxbroker
