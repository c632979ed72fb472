// SPDX-License-Identifier: Apache-2.0
#include "behaviour.hpp"

#include <link.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "ctxbroker/plugin.h"

#include "ctxbroker/version.hpp"
#include "elf_file.hpp"
#include "helpers.hpp"
#include "json/document.hpp"
#include "ladder.hpp"
#include "process/process.hpp"
#include "rig.hpp"

namespace ctxbroker::validate {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view behaviour_marker = "\n@ctxb-behaviour ";

std::set<std::string> loaded_libraries() {
  std::set<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        const std::filesystem::path path(info->dlpi_name);
        if (!path.empty()) static_cast<std::set<std::string>*>(data)->insert(path.filename());
        return 0;
      },
      &names);
  return names;
}

// The guarded driver calls between two moments, by name.
Json call_counts(const TenantMetrics& before, const TenantMetrics& after) {
  Json made = Json::object();
  for (const auto& [name, count] : after.guarded_calls) {
    const auto was = before.guarded_calls.find(name);
    const std::uint64_t more = count - (was == before.guarded_calls.end() ? 0 : was->second);
    if (more != 0) made[name] = more;
  }
  return made;
}

Json held(const TenantMetrics& metrics) {
  Json made = Json::object();
  for (const auto& [kind, things] : metrics.held) {
    made[kind] = {{"count", things.count}, {"bytes", things.bytes}};
  }
  return made;
}

bool any(const Json& calls, bool (*wanted)(std::string_view)) {
  return std::any_of(calls.items().begin(), calls.items().end(),
                     [&](const auto& one) { return wanted(one.key()); });
}

// One life, watched step by step.
class Observation {
 public:
  explicit Observation(Rig& rig) : rig_(rig) {}

  // Ends a phase: what the plug-in called since the last one.
  void phase(const char* name) {
    const TenantMetrics now = rig_.metrics();
    const Json called = call_counts(last_, now);
    phases_[name] = {{"driver_calls", called},
                     {"waits", now.waits.count - last_.waits.count},
                     {"strikes", now.strikes - last_.strikes}};
    resets_ = resets_ || any(called, is_reset);
    contexts_ = contexts_ || any(called, is_context_call);
    settings_ = settings_ || any(called, is_setting);
    last_ = now;
  }
  Json phases() const { return phases_; }
  Json summary() const {
    return {{"resets_the_device", resets_},
            {"makes_or_retains_contexts", contexts_},
            {"changes_shared_settings", settings_}};
  }

 private:
  Rig& rig_;
  TenantMetrics last_{};
  Json phases_ = Json::object();
  bool resets_ = false, contexts_ = false, settings_ = false;
};

Json observe(Rig& rig, const Trial& trial, const std::set<std::string>& libraries_before) {
  const PluginDescription& plugin = rig.plugin();
  Json json{{"id", plugin.id},
            {"version", plugin.version},
            {"cuda_use", to_string(plugin.cuda_use)},
            {"realtime", (plugin.flags & CTXB_PLUGIN_REALTIME) != 0}};
  Observation observation(rig);
  observation.phase("load");
  const std::size_t threads = thread_count();
  std::size_t most_threads = threads;
  try {
    const Setup setup = usual_setup(rig, trial.seed);
    PluginInstance instance = rig.create();
    observation.phase("create");
    instance.activate(setup.sizes);
    observation.phase("activate");
    json["memory"] = {{"of_the_host_bytes", instance.metrics().memory_bytes},
                      {"of_the_driver_bytes", rig.metrics().held_bytes}};
    {
      Bench bench(rig, instance, setup);
      bench.run_several(2);
      take_seen();
      const std::uint64_t launches = instance.metrics().launches;
      constexpr int jobs = 8;
      for (int i = 0; i < jobs; ++i) bench.run(bench.job(i + 2));
      const Seen seen = take_seen();
      json["jobs"] = {{"count", jobs},
                      {"launches", instance.metrics().launches - launches},
                      {"heap_calls_in_process", seen.process.allocations},
                      {"locks_in_process", seen.process.locks},
                      {"waits_for_the_processor", seen.process.waits}};
      most_threads = std::max(most_threads, thread_count());
    }
    observation.phase("process");
    instance.deactivate();
    observation.phase("deactivate");
  } catch (const Error& error) {
    json["stopped_by"] = error.what();
  }
  observation.phase("destroy");
  json["phases"] = observation.phases();
  json["summary"] = observation.summary();
  json["held_after_the_last_instance"] = held(rig.metrics());
  json["threads"] = {{"new", most_threads - threads}};
  json["libraries"] = Json::array();
  for (const std::string& name : loaded_libraries()) {
    const bool known = libraries_before.count(name) != 0 || name == trial.file.filename() ||
                       name == std::filesystem::path(rig.broker().driver().path).filename();
    if (!known) json["libraries"].push_back(name);
  }
  return json;
}

}  // namespace

void observe_behaviour(Trial& trial) {
  const std::set<std::string> before = loaded_libraries();
  Rig rig(trial);
  const Json json = observe(rig, trial, before);
  std::printf("%.*s%s\n", static_cast<int>(behaviour_marker.size()), behaviour_marker.data(),
              json.dump(-1, ' ', true, Json::error_handler_t::replace).c_str());
}

Json behaviour_of(const Options& options) {
  Json json{{"schema", "ctxbroker.behaviour/1"},
            {"version", version()},
            {"file", options.file.filename().string()}};
  try {
    const ElfFile file(options.file);
    json["needed_libraries"] = file.needed();
    json["run_path"] = file.run_path();
  } catch (const Failed&) {  // NOLINT(bugprone-empty-catch): static.library says so
  }
  const Result load = run_in_child(options, *find_test("load.loads"), "");
  json["driver"] = load.notes.is_object() ? load.notes.value("driver", "") : "";
  json["loads"] = load.outcome == Outcome::pass;
  if (load.outcome != Outcome::pass) json["why_not"] = load.text;
  json["plugins"] = Json::array();
  if (load.outcome != Outcome::pass) return json;
  for (const auto& one : load.notes.value("plugins", nlohmann::json::array())) {
    const auto id = one.at("id").get<std::string>();
    if (const auto why_not = one.at("why_not").get<std::string>(); !why_not.empty()) {
      json["plugins"].push_back({{"id", id}, {"stopped_by", why_not}});
      continue;
    }
    std::vector<std::string> arguments{
        options.file.string(),       "--child", "behaviour", "--plugin", id, "--seed",
        std::to_string(options.seed)};
    if (!options.driver.empty()) arguments.insert(arguments.end(), {"--driver", options.driver});
    const detail::ProcessExit end =
        detail::run_process("/proc/self/exe", arguments, options.deadline);
    const std::size_t at = end.output.rfind(behaviour_marker);
    std::optional<Json> told;
    if (at != std::string::npos) {
      told = ctxbroker::json::parsed(
          std::string_view(end.output).substr(at + behaviour_marker.size()));
    }
    Json made = told ? std::move(*told) : Json();
    if (!made.is_object()) {
      made = {{"id", id},
              {"stopped_by", end.timed_out     ? "it did not end in time"
                             : end.signal != 0 ? "a signal ended the process"
                                               : "the process ended by itself"}};
    }
    json["plugins"].push_back(std::move(made));
  }
  return json;
}

}  // namespace ctxbroker::validate
