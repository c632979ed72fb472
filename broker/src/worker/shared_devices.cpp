// SPDX-License-Identifier: Apache-2.0
#include "worker/shared_devices.hpp"

#include <string>
#include <utility>

#include "worker/graph_served.hpp"

namespace ctxbroker::detail {

// A shared lease costs nothing, and its memory is that of most plug-ins' leases.
Tenant& SharedDevices::tenant(Broker& broker) {
  if (!tenant_) {
    TenantOptions options;
    options.lease = LeaseChoice(LeaseKind::shared);
    tenant_ = broker.open_tenant("host's device memory", options);
  }
  return *tenant_;
}

void SharedDevices::keep(std::uint64_t handle, ctxbroker::DeviceMemory memory) {
  check_message(memory_.emplace(handle, std::move(memory)).second,
                "this device memory is lent already");
}

Descriptor SharedDevices::make(Broker& broker, std::uint64_t handle, std::uint64_t bytes,
                               int device) {
  auto memory = ctxbroker::DeviceMemory::shareable(tenant(broker), bytes, device);
  Descriptor file(memory.export_descriptor());
  keep(handle, std::move(memory));
  return file;
}

void SharedDevices::lend(Broker& broker, std::uint64_t handle, int descriptor, std::uint64_t bytes,
                         int device) {
  keep(handle, ctxbroker::DeviceMemory::imported(tenant(broker), descriptor, bytes, device));
}

void SharedDevices::take_back(std::uint64_t handle) {
  check_message(memory_.erase(handle) == 1, "this device memory is not lent");
}

const ctxbroker::DeviceMemory& SharedDevices::at(std::uint64_t handle) const {
  const auto found = memory_.find(handle);
  check_message(found != memory_.end(), "a buffer's device memory is not lent");
  return found->second;
}

void SharedDevices::describe(Broker& broker, int device, GraphDescription& graph) {
  if (!any_on_device(graph.inputs) && !any_on_device(graph.outputs)) return;
  graph.tenant = &tenant(broker);
  graph.device = device;
}

}  // namespace ctxbroker::detail
