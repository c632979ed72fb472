// SPDX-License-Identifier: Apache-2.0
#include "policy_text.hpp"

#include <map>

#include "ctxbroker/error.hpp"
#include "ctxbroker/memory_source.hpp"
#include "ctxbroker/policy.hpp"
#include "exit_code.hpp"
#include "json/document.hpp"

namespace ctxbroker::launch {
namespace {

using json::Json;

// Checked by itself, so that an error names its place in the file.
Json read_file(const std::string& path) {
  const std::string text = json::read_text(path, "policy", limits::policy_file);
  static_cast<void>(parse_policy(text, path));
  return Json::parse(text);
}

void add_tenant(Json& policy, Json& patterns, const TenantOption& tenant) {
  patterns.push_back({{"match", tenant.glob}, {"tenant", tenant.name}});
  if (tenant.lease) policy["by_id"][tenant.name]["lease"] = to_string(*tenant.lease);
}

// Two --tenant of one name are one tenant, which has one lease.
void check_leases(const Options& options) {
  std::map<std::string, std::string> leases;
  for (const TenantOption& tenant : options.tenants) {
    if (!tenant.lease) continue;
    const std::string lease = to_string(*tenant.lease);
    const auto [known, is_new] = leases.emplace(tenant.name, lease);
    if (is_new || known->second == lease) continue;
    throw Failure(ExitCode::failed, "--tenant: " + tenant.name + " is given the leases " +
                                        known->second + " and " + lease +
                                        "; a tenant has one, so write one of them");
  }
}

// Programs share memory with other processes in ways that memory of a pool does not support. So a
// tenant's memory comes from the driver unless the policy chooses. A wrong "for_all" is refused
// later.
void keep_drivers_memory(Json& policy) {
  Json& all = policy["for_all"];
  if (all.is_null()) all = Json::object();
  if (all.is_object() && !all.contains("memory")) all["memory"] = to_string(MemorySource::driver);
}

}  // namespace

std::string make_policy(const Options& options) {
  try {
    check_leases(options);
    Json policy =
        options.policy.empty() ? Json{{"schema", "ctxbroker.policy/1"}} : read_file(options.policy);
    Json patterns = Json::array();
    for (const TenantOption& tenant : options.tenants) add_tenant(policy, patterns, tenant);
    if (policy.contains("libraries")) {
      for (const Json& pattern : policy["libraries"]) patterns.push_back(pattern);
    }
    if (options.each) patterns.push_back({{"match", "*"}, {"tenant", "*"}});
    if (!patterns.empty()) policy["libraries"] = patterns;
    keep_drivers_memory(policy);
    std::string text = policy.dump();
    static_cast<void>(
        parse_policy(text, options.policy.empty() ? "of the command line" : options.policy));
    return text;
  } catch (const Error& error) {
    throw Failure(ExitCode::failed, error.message());
  } catch (const json::DocumentError& error) {
    throw Failure(ExitCode::failed, error.what());
  }
}

}  // namespace ctxbroker::launch
