// SPDX-License-Identifier: Apache-2.0
// Device memory that this process shares with others: what it was lent or has made for them, and a
// tenant whose memory it is here.
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
  // Memory that another process gets by `lend`, with the descriptor. Throws what
  // DeviceMemory::shareable throws.
  Descriptor make(Broker& broker, std::uint64_t handle, std::uint64_t bytes, int device);
  // Throws what DeviceMemory::imported throws.
  void lend(Broker& broker, std::uint64_t handle, int descriptor, std::uint64_t bytes, int device);
  // May wait for work.
  void take_back(std::uint64_t handle);
  const ctxbroker::DeviceMemory& at(std::uint64_t handle) const;
  // If an end is on the device, names the tenant for it.
  void describe(Broker& broker, int device, GraphDescription& graph);
  Tenant& tenant(Broker& broker);

 private:
  void keep(std::uint64_t handle, ctxbroker::DeviceMemory memory);

  std::optional<Tenant> tenant_;
  std::map<std::uint64_t, ctxbroker::DeviceMemory> memory_;
};

}  // namespace ctxbroker::detail
