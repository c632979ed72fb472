// SPDX-License-Identifier: Apache-2.0
#include "plugin/option_check.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/error.hpp"
#include "json/document.hpp"
#include "plugin/claimed_libraries.hpp"
#include "text/tenant_name.hpp"

namespace ctxbroker::detail {
namespace {

using std::chrono::milliseconds;

template <typename Enum>
void check_enumerator(Enum value, const char* member, const char* type,
                      ErrorKind kind = ErrorKind::invalid_argument) {
  if (std::string_view(to_string(value)) != "unknown") return;
  throw Error(kind, std::string(member) + " is " + std::to_string(static_cast<int>(value)) +
                        ", which is not an enumerator of " + type);
}

void check_placement(const std::optional<Placement>& placement, const char* member) {
  if (!placement) return;
  switch (placement->rule) {
    case PlacementRule::fixed:
    case PlacementRule::round_robin:
    case PlacementRule::most_free_memory:
      return;
  }
  throw Error(ErrorKind::invalid_argument, std::string(member) + " has the rule " +
                                               std::to_string(static_cast<int>(placement->rule)) +
                                               ", which is not an enumerator of PlacementRule");
}

void check_policy(const PluginPolicy& policy) {
  if (policy.lease) check_enumerator(policy.lease->kind, "a policy's lease", "LeaseKind");
  check_placement(policy.placement, "a policy's placement");
  if (policy.memory) check_enumerator(*policy.memory, "a policy's memory", "MemorySource");
}

constexpr std::string_view host_name = "host";
constexpr const char* host_is_taken =
    "stands for all code that belongs to no tenant; use another name";

void check_libraries(const std::vector<LibraryPattern>& patterns) {
  for (std::size_t index = 0; index < patterns.size(); ++index) {
    const auto check_member = [&](const char* member, const std::string& value,
                                  const std::string& why) {
      if (why.empty()) return;
      throw Error(ErrorKind::invalid_argument, "BrokerOptions::policy.libraries[" +
                                                   std::to_string(index) + "]." + member + ": " +
                                                   json::quoted(value) + " " + why);
    };
    const LibraryPattern& one = patterns[index];
    check_member("match", one.match, why_no_match(one.match));
    check_member("tenant", one.tenant, why_no_tenant(one.tenant));
  }
}

milliseconds checked(milliseconds time, const char* member) {
  if (time < milliseconds::zero()) {
    throw Error(ErrorKind::invalid_argument,
                std::string(member) + " is " + std::to_string(time.count()) +
                    " ms, but a time cannot be negative; zero means no limit");
  }
  return std::min<milliseconds>(time, std::chrono::hours(365 * 24));
}

}  // namespace

BrokerOptions checked(BrokerOptions options) {
  if (options.driver) {
    check_enumerator(*options.driver, "BrokerOptions::driver", "DriverChoice",
                     ErrorKind::driver_choice);
  }
  options.job_timeout = checked(options.job_timeout, "BrokerOptions::job_timeout");
  options.end_timeout = checked(options.end_timeout, "BrokerOptions::end_timeout");
  check_policy(options.policy.for_all);
  for (const auto& [id, policy] : options.policy.by_id) check_policy(policy);
  check_libraries(options.policy.libraries);
  check(options.host);
  return options;
}

std::string why_no_match(const std::string& match) {
  if (match.empty()) {
    return "is no pattern; allowed is a text such as \"*/libblur.so\", in which * stands for any "
           "text, ? for one character and [abc] for one of these";
  }
  if (match.find_first_of("/*?[") != 0) {
    return "can match no library, because real paths begin with \"/\"; write \"*/" + match + "\"";
  }
  return {};
}

std::string why_no_tenant(const std::string& tenant) {
  if (tenant == host_name) return host_is_taken;
  if (tenant == each_package || is_tenant_name(tenant)) return {};
  return "is no tenant's name; a name looks like com.example.name or torch and consists of "
         "letters, digits, '-', '_' and '.'; \"*\" stands for a tenant for each package";
}

void check_tenant_name(const std::string& name) {
  if (name.empty()) throw Error(ErrorKind::invalid_argument, "open_tenant: the name is empty");
  if (name != host_name) return;
  throw Error(ErrorKind::invalid_argument, std::string("open_tenant: \"host\" ") + host_is_taken +
                                               ", or Broker::host for the host's own tenant");
}

void check(const TenantOptions& options) {
  check_enumerator(options.lease.kind, "TenantOptions::lease", "LeaseKind");
  check_enumerator(options.memory, "TenantOptions::memory", "MemorySource");
}

void check(const InstanceOptions& options) {
  check_enumerator(options.lease.kind, "InstanceOptions::lease", "LeaseKind");
  check_placement(options.device, "InstanceOptions::device");
}

void check(const TimelineSink& sink) {
  if (!sink) throw Error(ErrorKind::invalid_argument, "write_timeline: the sink is empty");
}

}  // namespace ctxbroker::detail
