// SPDX-License-Identifier: Apache-2.0
#include "check.hpp"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

namespace ctxbroker::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* continuation = "\n           ";

std::string program_text(const Program& program) {
  std::string text = program.path;
  for (std::size_t i = 0; i < program.run_by.size(); ++i) {
    const char* const first = program.is_script ? ", a script that runs with " : ", which starts ";
    text += (i == 0 ? first : ", then ") + program.run_by[i];
  }
  return text;
}

std::string driver_text(const Settings& settings) {
  const char* const variable = std::getenv("CTXBROKER_DRIVER");  // NOLINT(concurrency-mt-unsafe)
  if (settings.driver) return std::string(to_string(*settings.driver)) + ", as --driver says";
  if (variable != nullptr && *variable != '\0') {
    return std::string(variable) + ", as CTXBROKER_DRIVER says";
  }
  return "nvidia; if this machine has none, the program finds no device, as it does alone";
}

// The policy is sound: make_policy has looked at it.
std::string lease_of(const Json& policy, const std::string& tenant) {
  const Json::json_pointer places[] = {Json::json_pointer("/by_id") / tenant / "lease",
                                       Json::json_pointer("/for_all/lease")};
  for (const Json::json_pointer& place : places) {
    if (policy.contains(place)) return policy[place].get<std::string>();
  }
  return "auto";
}

std::string tenants_text(const Json& policy) {
  if (!policy.contains("libraries") || policy["libraries"].empty()) {
    return "none: the shield alone. The driver refuses every call that would destroy what all "
           "libraries share";
  }
  std::string text;
  for (const Json& pattern : policy["libraries"]) {
    const auto match = pattern["match"].get<std::string>();
    const auto tenant = pattern["tenant"].get<std::string>();
    text += text.empty() ? "" : continuation;
    if (tenant == "*") {
      text += "one for each package that brings CUDA code of its own, lease " +
              lease_of(policy, tenant);
      if (match != "*") text += ", if its path matches " + match;
    } else {
      text.append(tenant).append(", lease ").append(lease_of(policy, tenant));
      text.append(": ").append(match);
    }
  }
  return text;
}

// The tenants that the policy sets, and that no pattern can make. A policy of several hosts may set
// tenants of theirs.
std::vector<std::string> tenants_without_pattern(const Json& policy) {
  std::vector<std::string> named, without;
  if (policy.contains("libraries")) {
    for (const Json& pattern : policy["libraries"]) named.push_back(pattern["tenant"]);
  }
  const auto is_named = [&](const std::string& tenant) {
    return std::find(named.begin(), named.end(), tenant) != named.end();
  };
  if (is_named("*") || !policy.contains("by_id")) return without;  // packages get names later
  for (const auto& [tenant, settings] : policy["by_id"].items()) {
    if (!is_named(tenant)) without.push_back(tenant);
  }
  return without;
}

std::string children_text(const Settings& settings) {
  if (!settings.children)
    return "not covered, as --children=no says. What the program becomes with exec is";
  return "covered, if they keep LD_PRELOAD, LD_LIBRARY_PATH and CTXBROKER_RUN, and are not "
         "statically linked or set-user-ID";
}

std::string output_text(const Settings& settings) {
  std::string text = settings.verbose ? "a summary on standard error at exit"
                                      : "a summary on standard error at exit, if something was "
                                        "refused or lost, or a pattern gave its tenant no library";
  if (!settings.report.empty()) text += std::string(continuation) + "report: " + settings.report;
  if (!settings.trace.empty()) text += std::string(continuation) + "timeline: " + settings.trace;
  return text;
}

constexpr const char* limits =
    "A driver that a library opens by its absolute path, or with dlmopen, is not guarded.\n"
    "           Faults of kernels and stray writes reach all work on the device.\n"
    "           A process that is forked after the first call of the driver has no CUDA.\n"
    "           A process that is killed, or ends with _exit or exec, prints no summary, and its\n"
    "           report may lack the last figures.";

}  // namespace

std::string check_text(const Options& options, const Settings& settings, const Program& program) {
  std::string text = "program    " + program_text(program) + "\n";
  if (!options.policy.empty()) text += "policy     " + options.policy + "\n";
  text += "driver     " + driver_text(settings) + "\n";
  text += "tenants    " + tenants_text(Json::parse(settings.policy)) + "\n";
  text += "children   " + children_text(settings) + "\n";
  text += "output     " + output_text(settings) + "\n";
  text += "limits     " + std::string(limits) + "\n";
  for (const std::string& tenant : tenants_without_pattern(Json::parse(settings.policy))) {
    text += "careful    the policy sets the tenant " + tenant +
            ", but no pattern gives it a library, so those settings have no effect here\n";
  }
  if (const std::string driver = driver_path_in(program.path); !driver.empty()) {
    text +=
        "careful    the program's file contains the path of a driver, and may open it past the "
        "gate: " +
        driver + "\n";
  }
  return text;
}

}  // namespace ctxbroker::launch
