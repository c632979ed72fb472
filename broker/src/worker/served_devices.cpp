// SPDX-License-Identifier: Apache-2.0
#include "worker/served_devices.hpp"

#include <string>

#include "worker/graph_served.hpp"

namespace ctxbroker::detail {

// A shared lease costs nothing, and its memory is that of most plug-ins' leases.
Tenant& ServedDevices::tenant(Broker& broker) {
  if (!tenant_) {
    TenantOptions options;
    options.lease = LeaseChoice(LeaseKind::shared);
    tenant_ = broker.open_tenant("host's device memory", options);
  }
  return *tenant_;
}

void ServedDevices::lend(Broker& broker, std::uint64_t handle, int descriptor, std::uint64_t bytes,
                         int device) {
  need_of_message(memory_.find(handle) == memory_.end(), "this device memory is lent already");
  memory_.emplace(handle,
                  ctxbroker::DeviceMemory::imported(tenant(broker), descriptor, bytes, device));
}

void ServedDevices::take_back(std::uint64_t handle) {
  need_of_message(memory_.erase(handle) == 1, "this device memory is not lent");
}

const ctxbroker::DeviceMemory& ServedDevices::at(std::uint64_t handle) const {
  const auto found = memory_.find(handle);
  need_of_message(found != memory_.end(), "a buffer's device memory is not lent");
  return found->second;
}

void ServedDevices::describe(Broker& broker, int device, GraphDescription& graph) {
  if (!any_on_device(graph.inputs) && !any_on_device(graph.outputs)) return;
  graph.tenant = &tenant(broker);
  graph.device = device;
}

}  // namespace ctxbroker::detail
