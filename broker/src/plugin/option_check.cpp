// SPDX-License-Identifier: Apache-2.0
#include "plugin/option_check.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "ctxbroker/error.hpp"

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
  check(options.host);
  return options;
}

void check(const TenantOptions& options) {
  check_enumerator(options.lease.kind, "TenantOptions::lease", "LeaseKind");
}

void check(const InstanceOptions& options) {
  check_enumerator(options.lease.kind, "InstanceOptions::lease", "LeaseKind");
  check_placement(options.device, "InstanceOptions::device");
}

void check(const TimelineSink& sink) {
  if (!sink) throw Error(ErrorKind::invalid_argument, "write_timeline: the sink is empty");
}

}  // namespace ctxbroker::detail
