// SPDX-License-Identifier: Apache-2.0
// Gives the broker's own code the implementations behind the public classes.
#pragma once

#include <memory>
#include <utility>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/host_memory.hpp"
#include "ctxbroker/plugin_instance.hpp"
#include "ctxbroker/tenant.hpp"

namespace ctxbroker::detail {

struct ExportedMemory;
class HostPages;

struct Access {
  // Throws Error (wrong_state) when the broker is closed.
  static BrokerImpl& of(Broker& broker) { return broker.open_impl(); }
  // The instance must not be moved from.
  static Instance& of(const PluginInstance& instance) noexcept { return *instance.impl_; }
  // Throws Error (wrong_state) when the tenant is closed.
  static const std::shared_ptr<TenantImpl>& of(Tenant& tenant);
  // Throws as DeviceMemory::export_descriptor.
  static ExportedMemory exported(const ctxbroker::DeviceMemory& memory);
  // Null if the object holds nothing.
  static std::shared_ptr<HostPages> pages_of(const HostMemory& memory);
  static HostMemory host_memory(std::shared_ptr<HostBlock> block) noexcept {
    return HostMemory(std::move(block));
  }
};

}  // namespace ctxbroker::detail
