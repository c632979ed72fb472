// SPDX-License-Identifier: Apache-2.0
#include "plugin/instance_settings.hpp"

#include <algorithm>

#include "context/lease_decision.hpp"

namespace ctxbroker::detail {
namespace {

constexpr const char* host = "the host";
constexpr const char* policy_for_all = "the policy for all plug-ins";

std::string policy_for(const std::string& id) {
  return "the policy for " + id;
}

const PluginPolicy* find(const Policy& policy, const std::string& id) {
  const auto found = policy.by_id.find(id);
  return found == policy.by_id.end() ? nullptr : &found->second;
}

}  // namespace

LeaseOrder lease_order(const LeaseChoice& by_host, const Policy& policy,
                       const std::vector<std::string>& ids) {
  if (by_host.kind != LeaseKind::automatic) return {by_host, host};
  LeaseOrder order;
  bool all_named = true;
  for (const std::string& id : ids) {
    const PluginPolicy* own = find(policy, id);
    if (own == nullptr || !own->lease) {
      all_named = false;
      continue;
    }
    const LeaseChoice both = stronger(order.choice, *own->lease);
    if (both != order.choice) order = {both, policy_for(id)};
  }
  if (order.choice.kind != LeaseKind::automatic || all_named || !policy.for_all.lease) return order;
  return {*policy.for_all.lease, policy_for_all};
}

PlacementOrder placement_order(const InstanceOptions& options, const Policy& policy,
                               const PluginDescription& plugin) {
  if (options.device) return {options.device, host};
  const PluginPolicy* own = find(policy, plugin.id);
  if (own != nullptr && own->placement) return {own->placement, policy_for(plugin.id)};
  if (policy.for_all.placement) return {policy.for_all.placement, policy_for_all};
  return {};
}

namespace {

// Of the numbers for the plug-ins the smallest; 0 stands for no limit. `said` finds what a policy
// says; where it says nothing, `preset` counts.
template <typename Said>
std::uint64_t smallest_limit(const Policy& policy, const std::vector<std::string>& ids,
                             std::uint64_t preset, Said&& said) {
  std::uint64_t smallest = 0;
  for (const std::string& id : ids) {
    const PluginPolicy* own = find(policy, id);
    std::optional<std::uint64_t> limit;
    if (own != nullptr) limit = said(*own);
    if (!limit) limit = said(policy.for_all);
    if (!limit) limit = preset;
    if (*limit != 0 && (smallest == 0 || *limit < smallest)) smallest = *limit;
  }
  return smallest;
}

}  // namespace

std::uint64_t driver_memory_budget(std::uint64_t by_host, const Policy& policy,
                                   const std::vector<std::string>& ids) {
  if (by_host != 0) return by_host;
  return smallest_limit(policy, ids, 0,
                        [](const PluginPolicy& one) { return one.driver_memory_budget; });
}

std::uint64_t driver_limit(const LimitRow& row, const TenantOptions& options, const Policy& policy,
                           const std::vector<std::string>& ids) {
  if (row.member == nullptr) return driver_memory_budget(options.driver_memory_budget, policy, ids);
  if (const auto by_host = options.driver_limits.*row.member) return *by_host;
  return smallest_limit(policy, ids, row.preset,
                        [&](const PluginPolicy& one) { return one.driver_limits.*row.member; });
}

MemorySource memory_source(MemorySource by_host, const Policy& policy,
                           const std::vector<std::string>& ids,
                           const std::vector<std::string>& sharing) {
  if (by_host != MemorySource::automatic) return by_host;
  constexpr auto open = MemorySource::automatic;
  MemorySource chosen = open;
  for (const std::string& id : ids) {
    const PluginPolicy* own = find(policy, id);
    const bool shares = std::find(sharing.begin(), sharing.end(), id) != sharing.end();
    MemorySource said = own == nullptr ? open : own->memory.value_or(open);
    if (said == open && shares) said = MemorySource::driver;
    if (said == MemorySource::driver) return said;
    if (said != open) chosen = said;
  }
  if (chosen == open) chosen = policy.for_all.memory.value_or(open);
  return chosen == open ? default_memory_source : chosen;
}

std::uint64_t pinned_ahead(std::uint64_t by_host, const Policy& policy,
                           const std::vector<std::string>& ids) {
  if (by_host != 0) return by_host;
  std::uint64_t largest = 0;
  for (const std::string& id : ids) {
    const PluginPolicy* own = find(policy, id);
    const auto size =
        own != nullptr && own->pinned_ahead ? own->pinned_ahead : policy.for_all.pinned_ahead;
    largest = std::max(largest, size.value_or(0));
  }
  return largest;
}

bool refuses_in_realtime(const Policy& policy, const std::vector<std::string>& ids) {
  return std::any_of(ids.begin(), ids.end(), [&](const std::string& id) {
    const PluginPolicy* own = find(policy, id);
    const auto choice = own != nullptr && own->realtime ? own->realtime : policy.for_all.realtime;
    return choice == RealtimePolicy::refuse;
  });
}

std::uint64_t memory_budget(const InstanceOptions& options, const Policy& policy,
                            const PluginDescription& plugin) {
  if (options.memory_budget) return *options.memory_budget;
  const PluginPolicy* own = find(policy, plugin.id);
  if (own != nullptr && own->memory_budget) return *own->memory_budget;
  return policy.for_all.memory_budget.value_or(0);
}

}  // namespace ctxbroker::detail
