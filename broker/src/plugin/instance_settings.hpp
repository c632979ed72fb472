// SPDX-License-Identifier: Apache-2.0
// Puts the host's options, its policy and the defaults together into the settings of an instance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/plugin_description.hpp"
#include "ctxbroker/plugin_instance.hpp"
#include "ctxbroker/policy.hpp"
#include "ctxbroker/tenant.hpp"
#include "ledger/limits.hpp"

namespace ctxbroker::detail {

// A choice and who made it: "the host", "the policy for com.example.blur".
struct LeaseOrder {
  LeaseChoice choice;  // automatic: nobody asked
  std::string by;
};

// For a tenant, of which any plug-in may be meant (`ids` are all of them): the host's options stand
// above the policy by id, that above the policy for all. Where plug-ins differ within a rank, the
// stronger choice counts.
LeaseOrder lease_order(const LeaseChoice& by_host, const Policy& policy,
                       const std::vector<std::string>& ids);

// The placement of one plug-in, and who asked for it; nothing if nobody did.
struct PlacementOrder {
  std::optional<Placement> placement;
  std::string by;
};
PlacementOrder placement_order(const InstanceOptions& options, const Policy& policy,
                               const PluginDescription& plugin);

std::uint64_t memory_budget(const InstanceOptions& options, const Policy& policy,
                            const PluginDescription& plugin);

// Returns how many bytes of device memory a tenant's code may hold through the driver; 0: no limit.
// The host's own number (0: none) stands above the policy. If plug-ins have different budgets, the
// smallest counts.
std::uint64_t driver_memory_budget(std::uint64_t by_host, const Policy& policy,
                                   const std::vector<std::string>& ids);
// Returns the same for any row of the limits. If neither the host nor the policy has a number, the
// row's own counts.
std::uint64_t driver_limit(const LimitRow& row, const TenantOptions& options, const Policy& policy,
                           const std::vector<std::string>& ids);

// The source of a tenant's memory if neither the host nor the policy chooses. Programs under
// ctxb-run have the driver as theirs: see make_policy in ctxb-run.
inline constexpr MemorySource default_memory_source = MemorySource::pool;

// Returns the source of a tenant's device memory: never `automatic`. The host's choice comes first,
// then for each plug-in the policy by id or its descriptor, then the policy for all. `sharing`: the
// ids of plug-ins whose descriptors have CTXB_PLUGIN_DRIVER_MEMORY. If plug-ins differ, `driver`
// applies.
MemorySource memory_source(MemorySource by_host, const Policy& policy,
                           const std::vector<std::string>& ids,
                           const std::vector<std::string>& sharing = {});
// Returns the bytes of pinned memory that a tenant's store takes ahead of need. The host's own
// number (0: none) comes first. If the entries of plug-ins differ, the largest counts.
std::uint64_t pinned_ahead(std::uint64_t by_host, const Policy& policy,
                           const std::vector<std::string>& ids);
// Returns whether the policy refuses calls of a tenant's code that hold up its neighbours in a
// real-time session. If the entries of plug-ins differ, it refuses them.
bool refuses_in_realtime(const Policy& policy, const std::vector<std::string>& ids);

// An instance's own copy.
struct InstanceSettings {
  int device = 0;
  LeaseChoice lease;
  std::string lease_asked_by;
  std::uint64_t memory_budget = 0;  // bytes; 0: no limit
  bool job_graphs = false;
};

}  // namespace ctxbroker::detail
