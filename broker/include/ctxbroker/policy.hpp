// What a host decides for plug-ins by their ids, from a file that its users can write.
// docs/policy.schema.json describes the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "ctxbroker/export.hpp"
#include "ctxbroker/lease.hpp"
#include "ctxbroker/placement.hpp"

namespace ctxbroker {

// A member that is not set leaves the question to the next in line.
struct PluginPolicy {
  std::optional<LeaseChoice> lease;  // automatic: as the plug-ins wish, whatever for_all says
  std::optional<Placement> placement;
  std::optional<std::uint64_t> memory_budget;  // bytes per instance; 0: no limit
  // Bytes that the plug-in's library may hold through the driver; the gate counts them. 0: no
  // limit.
  std::optional<std::uint64_t> driver_memory_budget;
};

// InstanceOptions stand above it. A tenant has one lease per device, so what is said of one plug-in
// of a library counts for all of them; where by_id says different things, private beats green beats
// shared, and of budgets of driver memory the smallest counts. Ids of plug-ins that are never
// loaded do no harm.
struct Policy {
  PluginPolicy for_all;
  std::map<std::string, PluginPolicy> by_id;  // "com.example.blur"; before for_all
};

// Throws Error (policy) that names the file, the place in it and what is allowed there.
CTXB_API Policy read_policy(const std::filesystem::path& path);
// The same from text; `name` stands for the file in errors.
CTXB_API Policy parse_policy(std::string_view text, const std::string& name);

}  // namespace ctxbroker
