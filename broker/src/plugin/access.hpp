// SPDX-License-Identifier: Apache-2.0
// Gives the broker's own code the implementations behind the public classes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/plugin_instance.hpp"
#include "ctxbroker/tenant.hpp"

namespace ctxbroker::detail {

struct ExportedMemory;

// What a graph was made from. Use `instances` instead of the description's, which the host may have
// moved.
struct GraphParts {
  GraphDescription description;
  ActivationSizes sizes;
  GraphOptions options;
  std::vector<Instance*> instances;  // of each node
  std::uint64_t buffer_bytes = 0;    // the device memory of its jobs' buffers
};

struct Access {
  // Throws Error (wrong_state) when the broker is closed.
  static BrokerImpl& of(Broker& broker) { return broker.open_impl(); }
  // The instance must not be moved from.
  static Instance& of(const PluginInstance& instance) noexcept { return *instance.impl_; }
  // Throws Error (wrong_state) when the graph was moved from.
  static const GraphParts& of(const Graph& graph);
  // Each buffer of the next job, inputs and then outputs: whether it is in registered memory, and
  // nobody else uses it until the job has ended. Then it is copied from there and to there. For
  // LateJobs::deliver, and without jobs that wait.
  static void set_direct(Graph& graph, const std::vector<bool>& is_direct);
  // Throws Error (wrong_state) when the tenant is closed.
  static const std::shared_ptr<TenantImpl>& of(Tenant& tenant);
  // Throws as DeviceMemory::export_descriptor.
  static ExportedMemory exported(const ctxbroker::DeviceMemory& memory);
};

}  // namespace ctxbroker::detail
