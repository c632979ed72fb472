// SPDX-License-Identifier: Apache-2.0
// Policies from JSON. Everything is checked before anything is given back.
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "ctxbroker/error.hpp"
#include "ctxbroker/policy.hpp"
#include "json/document.hpp"
#include "plugin/document_error.hpp"
#include "plugin/option_check.hpp"
#include "text/tenant_name.hpp"

namespace ctxbroker {
namespace {

using json::described;
using json::element;
using json::Json;
using json::Location;
using json::member;
using json::quoted;
using json::read_members;
using json::required;
using json::whole_number;

constexpr const char* schema_name = "ctxbroker.policy/1";
constexpr std::uint64_t largest_budget = (std::uint64_t{1} << 53U) - 1;  // exact in all of JSON
constexpr std::uint64_t largest_device = 1023;
constexpr unsigned most_multiprocessors = 999'999'999;  // nine digits: the schema's pattern

void read_lease(const Json& value, const Location& location, PluginPolicy& policy) {
  std::optional<LeaseChoice> choice;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    choice = parse_lease_choice(text);
    // "green:016" is a lease for the command line; a file has one spelling for each.
    if (choice && (to_string(*choice) != text || choice->multiprocessors > most_multiprocessors)) {
      choice.reset();
    }
  }
  if (!choice) {
    location.refuse(described(value) +
                    " is not a lease; allowed are \"auto\", \"shared\", \"private\", \"green\" and "
                    "\"green:N\", where N is a number of multiprocessors from 1");
  }
  policy.lease = choice;
}

void read_placement(const Json& value, const Location& location, PluginPolicy& policy) {
  if (value.is_string()) {
    const auto rule = parse_placement(value.get_ref<const std::string&>());
    if (rule && rule->rule != PlacementRule::fixed) {
      policy.placement = rule;
      return;
    }
  } else if (const auto device = whole_number(value, largest_device)) {
    policy.placement = Placement(static_cast<int>(*device));
    return;
  }
  location.refuse(
      described(value) +
      " is not a placement; allowed are \"round-robin\", \"most-free-memory\" and a device's "
      "number from 0 to " +
      std::to_string(largest_device));
}

template <std::optional<std::uint64_t> DriverLimits::*limit>
void read_limit(const Json& value, const Location& location, DriverLimits& limits) {
  limits.*limit = whole_number(value, largest_budget);
  if (!(limits.*limit)) {
    location.refuse(described(value) +
                    " is no limit; allowed is a whole number from 0 (no limit) to " +
                    std::to_string(largest_budget));
  }
}

template <std::optional<std::uint64_t> PluginPolicy::*budget>
void read_budget(const Json& value, const Location& location, PluginPolicy& policy) {
  policy.*budget = whole_number(value, largest_budget);
  if (!(policy.*budget)) {
    location.refuse(described(value) +
                    " is not a memory budget; allowed is a whole number of bytes from "
                    "0 (no limit) to " +
                    std::to_string(largest_budget));
  }
}

void read_process(const Json& value, const Location& location, PluginPolicy& policy) {
  if (value.is_string()) {
    policy.process = parse_worker_grouping(value.get_ref<const std::string&>());
  }
  if (!policy.process) {
    location.refuse(described(value) +
                    " is no choice of a process; allowed are \"in-host\", \"together\", "
                    "\"by-vendor\", \"by-plug-in\" and \"each-instance\"");
  }
}

void read_memory(const Json& value, const Location& location, PluginPolicy& policy) {
  if (value.is_string()) {
    policy.memory = parse_memory_source(value.get_ref<const std::string&>());
  }
  if (!policy.memory || policy.memory == MemorySource::automatic) {
    location.refuse(described(value) +
                    " is not a source of memory; allowed are \"driver\" (the driver's own "
                    "allocations) and \"pool\" (pools of the tenant's own)");
  }
}

void read_pinned_ahead(const Json& value, const Location& location, PluginPolicy& policy) {
  policy.pinned_ahead = whole_number(value, largest_budget);
  if (!policy.pinned_ahead) {
    location.refuse(described(value) +
                    " is not a size of pinned memory; allowed is a whole number of bytes from 0 "
                    "(none) to " +
                    std::to_string(largest_budget));
  }
}

void read_realtime(const Json& value, const Location& location, PluginPolicy& policy) {
  if (value == "count") {
    policy.realtime = RealtimePolicy::count;
  } else if (value == "refuse") {
    policy.realtime = RealtimePolicy::refuse;
  } else {
    location.refuse(described(value) +
                    " is not a choice for calls in a real-time session; allowed are \"count\" and "
                    "\"refuse\"");
  }
}

using LimitReader = void (*)(const Json&, const Location&, DriverLimits&);
constexpr std::array<std::pair<const char*, LimitReader>, 6> limit_members{
    {{"pinned_memory", read_limit<&DriverLimits::pinned_memory>},
     {"streams", read_limit<&DriverLimits::streams>},
     {"events", read_limit<&DriverLimits::events>},
     {"graphs", read_limit<&DriverLimits::graphs>},
     {"modules", read_limit<&DriverLimits::modules>},
     {"contexts", read_limit<&DriverLimits::contexts>}}};

void read_limits(const Json& value, const Location& location, PluginPolicy& policy) {
  read_members(value, location, limit_members, policy.driver_limits);
}

using PluginReader = void (*)(const Json&, const Location&, PluginPolicy&);
constexpr std::array<std::pair<const char*, PluginReader>, 9> plugin_members{
    {{"lease", read_lease},
     {"placement", read_placement},
     {"memory_budget", read_budget<&PluginPolicy::memory_budget>},
     {"driver_memory_budget", read_budget<&PluginPolicy::driver_memory_budget>},
     {"driver_limits", read_limits},
     {"memory", read_memory},
     {"pinned_ahead", read_pinned_ahead},
     {"realtime", read_realtime},
     {"process", read_process}}};

// parse_document has looked at it.
void read_schema(const Json&, const Location&, Policy&) {}

void read_for_all(const Json& value, const Location& location, Policy& policy) {
  read_members(value, location, plugin_members, policy.for_all);
}

void read_by_id(const Json& value, const Location& location, Policy& policy) {
  if (!value.is_object()) {
    location.refuse(described(value) +
                    " is not allowed here; an object whose members are plug-in ids is");
  }
  for (const auto& item : value.items()) {
    const Location where = member(location, item.key());
    if (!detail::is_tenant_name(item.key())) {
      where.refuse(quoted(item.key()) +
                   " is neither a plug-in id nor a tenant's name; an id looks like "
                   "com.example.name and consists of letters, digits, '-', '_' and '.'");
    }
    read_members(item.value(), where, plugin_members, policy.by_id[item.key()]);
  }
}

template <std::string LibraryPattern::*text, std::string (*why_not)(const std::string&)>
void read_text_of(const Json& value, const Location& location, LibraryPattern& pattern) {
  if (value.is_string()) pattern.*text = value.get<std::string>();
  if (const std::string why = why_not(pattern.*text); !why.empty()) {
    location.refuse(described(value) + " " + why);
  }
}

using PatternReader = void (*)(const Json&, const Location&, LibraryPattern&);
constexpr std::array<std::pair<const char*, PatternReader>, 2> pattern_members{
    {{"match", read_text_of<&LibraryPattern::match, detail::why_no_match>},
     {"tenant", read_text_of<&LibraryPattern::tenant, detail::why_no_tenant>}}};

void read_libraries(const Json& value, const Location& location, Policy& policy) {
  if (!value.is_array()) {
    location.refuse(described(value) +
                    " is not allowed here; an array of objects with the members \"match\" and "
                    "\"tenant\" is");
  }
  for (std::size_t index = 0; index < value.size(); ++index) {
    const Location where = element(location, index);
    LibraryPattern pattern;
    read_members(value[index], where, pattern_members, pattern);
    for (const auto& [name, read] : pattern_members) required(value[index], where, name);
    policy.libraries.push_back(std::move(pattern));
  }
}

using PolicyReader = void (*)(const Json&, const Location&, Policy&);
constexpr std::array<std::pair<const char*, PolicyReader>, 4> policy_members{
    {{"schema", read_schema},
     {"for_all", read_for_all},
     {"by_id", read_by_id},
     {"libraries", read_libraries}}};

}  // namespace

Policy parse_policy(std::string_view text, const std::string& name) {
  return detail::with_errors_of(ErrorKind::policy, [&] {
    const Location root{"policy \"" + name + "\"", "$"};
    Policy policy;
    read_members(json::parse_document(text, root, schema_name), root, policy_members, policy);
    return policy;
  });
}

Policy read_policy(const std::filesystem::path& path) {
  const std::string text = detail::with_errors_of(
      ErrorKind::policy, [&] { return json::read_text(path, "policy", limits::policy_file); });
  return parse_policy(text, path.string());
}

}  // namespace ctxbroker
