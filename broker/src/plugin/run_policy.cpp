// SPDX-License-Identifier: Apache-2.0
#include "plugin/run_policy.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <string>

#include "ctxbroker/error.hpp"
#include "gate/code_claims.hpp"
#include "json/document.hpp"
#include "plugin/document_error.hpp"

namespace ctxbroker::detail {
namespace {

template <typename Member>
void take_if_open(Member PluginPolicy::*member, PluginPolicy& own, const PluginPolicy& runs) {
  if (!(own.*member)) own.*member = runs.*member;
}

void add(PluginPolicy& own, const PluginPolicy& runs) {
  take_if_open(&PluginPolicy::lease, own, runs);
  take_if_open(&PluginPolicy::placement, own, runs);
  take_if_open(&PluginPolicy::memory_budget, own, runs);
  take_if_open(&PluginPolicy::driver_memory_budget, own, runs);
  take_if_open(&PluginPolicy::realtime, own, runs);
  take_if_open(&PluginPolicy::process, own, runs);
  take_if_open(&PluginPolicy::memory, own, runs);
  take_if_open(&PluginPolicy::pinned_ahead, own, runs);
  for (const auto limit :
       {&DriverLimits::pinned_memory, &DriverLimits::streams, &DriverLimits::events,
        &DriverLimits::graphs, &DriverLimits::modules, &DriverLimits::contexts}) {
    if (!(own.driver_limits.*limit)) own.driver_limits.*limit = runs.driver_limits.*limit;
  }
}

// The settings that ctxb-run has given the process, as JSON text. The library that it preloads has
// them, also where the environment has been changed since. Null: there is no run.
const char* settings_of_run() {
  using Get = const char* (*)();
  const auto get = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "ctxb_run_settings"));
  return get != nullptr ? get() : nullptr;
}

}  // namespace

Policy with_policy_of_run(Policy own) {
  const char* const run = settings_of_run();
  if (run == nullptr || !open_claims()->empty()) return own;
  const Policy runs = with_errors_of(ErrorKind::policy, [&] {
    const json::Location root{"the settings of ctxb-run", "$"};
    const json::Json document = json::parse(run, root.document);
    return parse_policy(json::required(document, root, "policy").dump(), root.document);
  });
  add(own.for_all, runs.for_all);
  for (const auto& [id, policy] : runs.by_id) add(own.by_id[id], policy);
  for (const LibraryPattern& one : runs.libraries) {
    const bool is_there = std::any_of(
        own.libraries.begin(), own.libraries.end(),
        [&](const auto& its) { return its.match == one.match && its.tenant == one.tenant; });
    if (!is_there) own.libraries.push_back(one);
  }
  return own;
}

}  // namespace ctxbroker::detail
