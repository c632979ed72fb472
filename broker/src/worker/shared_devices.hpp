// SPDX-License-Identifier: Apache-2.0
// Device memory that this process shares with others: what it was lent, and a tenant whose memory
// it is here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/tenant.hpp"
#include "process/child.hpp"

namespace ctxbroker::detail {

class SharedDevices {
 public:
  // Memory for processes that get it by `lend`. It lasts as long as there is a descriptor. Throws
  // what DeviceMemory::shareable throws.
  Descriptor make(Broker& broker, std::uint64_t bytes, int device);
  // Throws what DeviceMemory::imported throws.
  void lend(Broker& broker, std::uint64_t handle, int descriptor, std::uint64_t bytes, int device);
  // May wait for work.
  void take_back(std::uint64_t handle);
  const ctxbroker::DeviceMemory& at(std::uint64_t handle) const;
  // If an end is on the device, names the tenant for it.
  void describe(Broker& broker, int device, GraphDescription& graph);

 private:
  Tenant& tenant(Broker& broker);

  std::optional<Tenant> tenant_;
  std::map<std::uint64_t, ctxbroker::DeviceMemory> memory_;
};

}  // namespace ctxbroker::detail
