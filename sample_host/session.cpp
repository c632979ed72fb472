// SPDX-License-Identifier: Apache-2.0
#include "session.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "catalogue.hpp"
#include "ctxbroker/preset.hpp"
#include "exit_code.hpp"
#include "files/start.hpp"
#include "logging.hpp"
#include "suggestion.hpp"
#include "text/shown_text.hpp"

namespace ctxbroker::sample_host {

namespace {

// Before anything is created.
void check_settings(const PlannedNode& node, const PluginDescription& plugin) {
  for (const auto& [parameter, text] : node.plugin.settings) {
    try {
      static_cast<void>(plugin.parameter_index(parameter));
    } catch (const Error& error) {
      throw Failure(error, node.where);
    }
  }
}

void apply_settings(const PlannedNode& node, std::size_t index, Engine& engine) {
  const PluginDescription& plugin = engine.description(index);
  for (const auto& [id, text] : node.plugin.settings) {
    try {
      if (plugin.parameters[plugin.parameter_index(id)].is_text()) {
        engine.set_text(index, id, text);
      } else {
        engine.set_parameter(index, id, engine.from_text(index, id, text));
      }
    } catch (const Error& error) {
      throw Failure(error, node.where);
    }
  }
}

std::vector<Preset> read_presets(const Options& options,
                                 const std::vector<const PluginDescription*>& plugins) {
  std::vector<Preset> presets;
  for (const std::filesystem::path& path : options.presets) {
    Preset preset = read_preset(path);
    const std::string id = preset.plugin;
    for (std::size_t i = 0; i < presets.size(); ++i) {
      if (presets[i].plugin != id) continue;
      throw Failure(ExitCode::usage, "--preset \"" + path.string() + "\": it is for plug-in " + id +
                                         ", and so is \"" + options.presets[i].string() +
                                         "\"; give one of them");
    }
    presets.push_back(std::move(preset));
    if (std::any_of(plugins.begin(), plugins.end(),
                    [&](const PluginDescription* plugin) { return plugin->id == id; })) {
      continue;
    }
    throw Failure(ExitCode::usage, "--preset \"" + path.string() + "\": it is for plug-in " + id +
                                       ", which is not used here; use it, or leave the preset out");
  }
  return presets;
}

// A state that the plug-in refuses is the file's fault: the plug-in is right to look at it.
[[noreturn]] void refuse_state(const std::string& where, const Error& error) {
  throw Failure(ExitCode::usage,
                where + "$.state: " + error.message() +
                    "; the file is damaged, or another version of the plug-in has written it; save "
                    "the preset again, or leave it out");
}

// `presets` are in the order of the options.
void apply_presets(const Options& options, const std::vector<Preset>& presets, std::size_t index,
                   Engine& engine) {
  for (std::size_t i = 0; i < presets.size(); ++i) {
    if (presets[i].plugin != engine.description(index).id) continue;
    const std::string where = "--preset \"" + options.presets[i].string() + "\": ";
    try {
      for (const PresetRemark& remark : engine.load_preset(index, presets[i])) {
        log(Severity::warning, "preset", where + remark.text);
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::plugin_failed && presets[i].state) refuse_state(where, error);
      throw Failure(error, where);
    }
  }
}

void check_media(const PlannedNode& node, const PluginDescription& plugin, Media media) {
  if (plugin.media == media) return;
  throw Failure(ExitCode::usage, node.where + plugin.id + " is for " + to_string(plugin.media) +
                                     "; use it with sample_host " + to_string(plugin.media));
}

// In a row, each plug-in gets what the one before it put out, and nothing else.
void check_ports(const PlannedNode& node, const PluginDescription& plugin) {
  std::string needed;
  for (const PortDescription& input : plugin.inputs) {
    if (!input.optional) needed += (needed.empty() ? "" : ", ") + input.id;
  }
  const bool has_one_input = !plugin.inputs.empty() && needed.find(',') == std::string::npos;
  const bool has_media = std::any_of(plugin.outputs.begin(), plugin.outputs.end(),
                                     [](const auto& output) { return output.result_bytes == 0; });
  if (has_one_input && plugin.outputs[0].result_bytes == 0) return;
  std::string why = "it has no input";
  if (!has_media) {
    why = "it only gives an analyser's results, and a row ends in a picture or a recording";
  } else if (!plugin.inputs.empty()) {
    why = !has_one_input ? "it needs the inputs " + needed : "its first output gives results";
  }
  throw Failure(ExitCode::usage, node.where + plugin.id + " cannot run in a row; " + why +
                                     (has_media ? ". Connect it with a graph file (--graph)"
                                                : ". Connect it with a graph file (--graph), whose "
                                                  "output with the name of a .json file takes "
                                                  "its results"));
}

// The port that feeds one of the graph's outputs. Null: the edge has another mistake, which the
// broker names.
const PortDescription* port_before(const GraphPlan& plan, const std::string& output,
                                   const std::vector<const PluginDescription*>& plugins) {
  for (const GraphEdge& edge : plan.edges) {
    if (edge.to != output) continue;
    const std::size_t dot = edge.from.find('.');
    for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
      if (plan.nodes[n].name != edge.from.substr(0, dot)) continue;
      for (const PortDescription& port : plugins[n]->outputs) {
        if (dot == std::string::npos || edge.from.substr(dot + 1) == port.id) return &port;
      }
    }
  }
  return nullptr;
}

// Results go to JSON files, and nothing else does.
void check_outputs(const GraphPlan& plan, const std::vector<const PluginDescription*>& plugins) {
  for (const PlannedPort& planned : plan.outputs) {
    const PortDescription* const port = port_before(plan, planned.name, plugins);
    if (port == nullptr || (port->result_bytes != 0) == planned.is_results()) continue;
    throw Failure(
        ExitCode::usage,
        plan.document + ": $.outputs." + planned.name + ": " +
            (planned.is_results()
                 ? "a .json file takes an analyser's results, and this output gets " +
                       std::string(to_string(plugins[0]->media)) + "; name another type of file"
                 : "it gets an analyser's results, which are written as JSON; name a "
                   "file that ends with .json"));
  }
}

// A graph's error with the place in the file that it is about, if its text names one.
std::string place_of(const GraphPlan& plan, std::string text) {
  constexpr std::string_view start = "graph: ";
  if (text.starts_with(start)) text.erase(0, start.size());
  const auto says = [&](const std::string& what) { return text.find(what) != std::string::npos; };
  for (std::size_t i = 0; i < plan.edges.size(); ++i) {
    const GraphEdge& edge = plan.edges[i];
    if (says("the edge from \"" + edge.from + "\" to \"" + edge.to + "\"")) {
      return "$.edges[" + std::to_string(i) + "]: " + text;
    }
  }
  const char* const hint = "; \"channels\" sets how many a port has";
  for (const PlannedPort& port : plan.inputs) {
    if (!says("the input \"" + port.name + "\" has ")) continue;
    return text.insert(0, "$.inputs." + port.name + ": ").append(hint);
  }
  for (const PlannedPort& port : plan.outputs) {
    if (!says("the output \"" + port.name + "\"")) continue;
    if (says("the output \"" + port.name + "\" takes ")) text.append(hint);
    return text.insert(0, "$.outputs." + port.name + ": ");
  }
  return text;
}

// With --isolate, the process of the plug-ins can end here. The files are written by then.
void end_and_tell(Engine& engine) {
  try {
    tell_strikes(engine.end());
  } catch (const Error& error) {
    log(Severity::warning, "worker", Failure(error).what());
  }
}

}  // namespace

std::vector<GraphPort> graph_ports(const std::vector<PlannedPort>& planned,
                                   const std::vector<std::uint32_t>& channels, SampleType samples) {
  std::vector<GraphPort> made;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    GraphPort port;
    port.name = planned[i].name;
    port.channels = channels.empty() ? 0 : channels[i];
    port.samples = samples;
    made.push_back(std::move(port));
  }
  return made;
}

// After a failure too, so that the strikes are told.
Session::~Session() {
  try {
    end_and_tell(*engine_);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for some words
  }
}

std::vector<const PluginDescription*> Session::plugins() const {
  std::vector<const PluginDescription*> all;
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) all.push_back(&engine_->description(i));
  return all;
}

Session::Session(const Options& options, const GraphPlan& plan, Media media)
    : options_(options),
      plan_(plan),
      engine_(options.isolate ? engine_in_worker(options, plan) : engine_in_host(options, plan)) {
  const std::vector<const PluginDescription*> chosen = plugins();
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    check_media(plan.nodes[i], *chosen[i], media);
    if (plan.is_row()) check_ports(plan.nodes[i], *chosen[i]);
    check_settings(plan.nodes[i], *chosen[i]);
  }
  if (!plan.is_row()) check_outputs(plan, chosen);
  check_members(plan, media);
  check_automation();
  warn_of_unknown_ids(options, chosen);
  const std::vector<Preset> presets = read_presets(options, chosen);
  engine_->create();
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    apply_presets(options, presets, i, *engine_);
    apply_settings(plan.nodes[i], i, *engine_);
  }
}

void Session::save_preset(const Options& options) const {
  if (options.save_preset.empty()) return;
  std::error_code none;
  const std::filesystem::path folder = options.save_preset.parent_path();
  if (!folder.empty() && !std::filesystem::exists(from_start(folder), none)) {
    throw Failure(ExitCode::output, "--save-preset \"" + options.save_preset.string() +
                                        "\": there is no folder \"" + folder.string() +
                                        "\"; create it, or name another one");
  }
  write_preset(engine_->save_preset(0), from_start(options.save_preset));
}

std::uint32_t Session::result_bytes(std::size_t output) const {
  const PortDescription* const port = port_before(plan_, plan_.outputs[output].name, plugins());
  return port == nullptr ? 0 : port->result_bytes;
}

bool Session::wants_restart() const {
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
    if (engine_->restart_requested(i)) return true;
  }
  return false;
}

void Session::tell_of_restarts() const {
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
    if (!engine_->restart_requested(i)) continue;
    log(Severity::warning, "plugin",
        description(i).short_name +
            " asked to be activated again, for another latency perhaps. A recording goes on as it "
            "began, so run it again with the parameters that the plug-in has now");
  }
}

bool Session::takes_halves() const {
  const auto takes = [](const PortDescription& port) {
    return port.result_bytes != 0 ||
           (port.samples & static_cast<std::uint32_t>(SampleType::float16)) != 0;
  };
  // In a row, nothing else is connected.
  const std::size_t most_ports = plan_.is_row() ? 1 : SIZE_MAX;
  const std::vector<const PluginDescription*> all = plugins();
  return std::all_of(all.begin(), all.end(), [&](const PluginDescription* plugin) {
    const auto all_take = [&](const std::vector<PortDescription>& ports) {
      const auto end =
          ports.begin() + static_cast<std::ptrdiff_t>(std::min(most_ports, ports.size()));
      return std::all_of(ports.begin(), end, takes);
    };
    return all_take(plugin->inputs) && all_take(plugin->outputs);
  });
}

void Session::activate(const ActivationSizes& sizes, const EndFormats& formats) {
  const std::size_t changes = std::min<std::size_t>(changes_.size(), most_changes);
  try {
    engine_->activate(sizes, formats, static_cast<std::uint32_t>(changes));
  } catch (const Error& error) {
    if (plan_.is_row() || error.kind() != ErrorKind::invalid_argument) throw;
    throw Failure(ExitCode::usage, plan_.document + ": " + place_of(plan_, error.message()));
  }
}

std::uint64_t Session::submit(const JobBuffers& buffers, const JobInfo& job,
                              const WorkerJobEvents& events) {
  if (!options_.move_on_fault) return engine_->submit(buffers, job, events);
  Job given{++last_job_, 0, buffers, job, events, automated_values()};
  run_or_move([&] { given.in_engine = engine_->submit(buffers, job, events); });
  // The graph has finished its oldest job to make room.
  if (in_flight_.size() == static_cast<std::size_t>(options_.jobs)) in_flight_.pop_front();
  in_flight_.push_back(std::move(given));
  return last_job_;
}

void Session::finish(std::uint64_t job) {
  if (!options_.move_on_fault) return engine_->finish(job);
  run_or_move([&] {
    for (const Job& one : in_flight_) {
      if (one.number == job) engine_->finish(one.in_engine);
    }
  });
  while (!in_flight_.empty() && in_flight_.front().number <= job) in_flight_.pop_front();
}

// Returns false if the error is not a fault that has ended CUDA here.
bool Session::move(const Error& error) {
  if (!options_.move_on_fault || error.kind() != ErrorKind::context_lost) return false;
  const std::vector<double> latest = automated_values();
  try {
    std::unique_ptr<Engine> worker = engine_->move_to_worker();
    if (worker == nullptr) return false;
    moved_because_ = error.message();
    log(Severity::warning, "worker",
        "the plug-ins go on in a process of their own, and the unfinished jobs run again there");
    end_and_tell(*std::exchange(engine_, std::move(worker)));
    run_again();
    set_automated(latest);
  } catch (const Error& why) {
    in_flight_.clear();
    throw Error(ErrorKind::context_lost,
                why.message() +
                    "; the plug-ins were about to go on in a process of their own, "
                    "because " +
                    error.message(),
                why.origin());
  }
  return true;
}

void Session::run_again() {
  for (Job& job : in_flight_) {
    set_automated(job.values);
    job.in_engine = engine_->submit(job.buffers, job.info, job.events);
  }
}

std::vector<double> Session::automated_values() const {
  std::vector<double> values;
  if (!moved_because_.empty()) return values;  // they do not move twice
  for (const auto& [node, parameter] : automated_) {
    values.push_back(engine_->parameter_value(node, parameter).number());
  }
  return values;
}

void Session::set_automated(const std::vector<double>& values) {
  std::size_t next = 0;
  for (const auto& [node, parameter] : automated_) {
    engine_->set_parameter(node, parameter, values[next++]);
  }
}

std::vector<DeviceInfo> Session::devices() const {
  const std::vector<DeviceInfo> all = engine_->devices();
  std::vector<DeviceInfo> used;
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
    const int device = engine_->lease(i).device;
    const auto same = [&](const DeviceInfo& one) { return one.ordinal == device; };
    if (std::any_of(used.begin(), used.end(), same)) continue;
    used.push_back(all[static_cast<std::size_t>(device)]);
  }
  return used;
}

// Nodes of a row have the names that the broker gives them.
void Session::check_automation() {
  if (plan_.automation.empty()) return;
  const std::vector<const PluginDescription*> chosen = plugins();
  std::vector<std::string> names;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    std::string name = plan_.nodes[i].name;
    if (plan_.is_row()) {
      name = chosen[i]->short_name;
      const auto same =
          std::count_if(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const PluginDescription* one) { return one->short_name == name; });
      if (same != 0) name += '_' + std::to_string(same + 1);
    }
    names.push_back(std::move(name));
  }
  for (AutomationLine& line : read_automation(from_start(plan_.automation))) {
    const auto name = std::find(names.begin(), names.end(), line.node);
    if (name == names.end()) {
      throw Failure(ExitCode::usage, line.where + "there is no node " + detail::excerpt(line.node) +
                                         "; there are: " + join(names));
    }
    Change change{line, static_cast<std::size_t>(name - names.begin()), 0, 0};
    const PluginDescription& plugin = *chosen[change.node];
    const auto with_place = [&line](const auto& read) {
      try {
        return read();
      } catch (const Error& error) {
        throw Failure(error, line.where);
      }
    };
    change.parameter = with_place([&] { return plugin.parameter_index(line.parameter); });
    const ParameterDescription& parameter = plugin.parameters[change.parameter];
    const std::string what = line.where + "\"" + parameter.id + "\" of " + plugin.short_name;
    if (!parameter.automatable) {
      throw Failure(ExitCode::usage, what +
                                         " cannot change while the plug-in works; set it in the " +
                                         (plan_.is_row() ? "row" : "graph file"));
    }
    if (number_count(parameter.type) != 1) {
      throw Failure(ExitCode::usage, what +
                                         " has several numbers; automate only parameters with "
                                         "one number");
    }
    if (line.ramp > 0 && parameter.type != ParameterType::floating) {
      throw Failure(ExitCode::usage, what + " takes " + to_string(parameter.type) +
                                         " values, which jump; leave out the ramp");
    }
    change.value = with_place([&] { return parameter.parse(line.value).number(); });
    automated_.emplace(change.node, line.parameter);
    changes_.push_back(std::move(change));
  }
}

std::vector<AutomationPoint> Session::automation(double rate) {
  std::vector<AutomationPoint> points;
  for (const Change& change : changes_) {
    AutomationPoint point;
    point.node = change.node;
    point.parameter = change.parameter;
    const std::uint64_t late = engine_->latency_before(change.node);
    point.begin = std::llround(change.line.time * rate) + static_cast<std::int64_t>(late);
    point.ramp_frames = static_cast<std::uint32_t>(
        std::min<std::int64_t>(std::llround(change.line.ramp * rate), UINT32_MAX));
    point.value = change.value;
    point.from = engine_->parameter_value(change.node, change.line.parameter).number();
    point.change = points.size();
    points.push_back(point);
  }
  return prepare_automation(std::move(points));
}

void Session::check_blocks(const Automation& automation, std::uint32_t frames) const {
  const auto beyond = automation.first_beyond(frames, most_changes);
  if (!beyond) return;
  throw Failure(ExitCode::usage,
                changes_[beyond->change].line.where + "more than " + std::to_string(most_changes) +
                    " changes come in one block of " + std::to_string(frames) +
                    " frames; leave some out" + (frames > 1 ? ", or use a smaller --block" : ""));
}

}  // namespace ctxbroker::sample_host
