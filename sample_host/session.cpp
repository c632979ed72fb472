// SPDX-License-Identifier: Apache-2.0
#include "session.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ctxbroker/preset.hpp"
#include "ctxbroker/version.hpp"
#include "exit_code.hpp"
#include "logging.hpp"
#include "suggestion.hpp"

namespace ctxbroker::sample_host {

namespace {

constexpr std::size_t trace_memory = std::size_t{256} << 20;  // bytes

Broker open_broker(const Options& options) {
  BrokerOptions broker_options;
  broker_options.host_name = "sample_host";
  broker_options.host_version = version();
  broker_options.driver = options.driver;
  broker_options.records = record_sink();
  broker_options.job_timeout = std::chrono::milliseconds(options.job_timeout);
  if (!options.policy.empty()) broker_options.policy = read_policy(options.policy);
  Broker broker = Broker::open(std::move(broker_options));
  if (!options.trace.empty()) broker.start_timeline(TimelineOptions{trace_memory});
  return broker;
}

// Known before plug-ins are loaded.
void check_device(const Broker& broker, const std::optional<Placement>& placement) {
  if (!placement || placement->rule != PlacementRule::fixed) return;
  const std::size_t count = broker.devices().size();
  if (static_cast<std::size_t>(placement->device) < count) return;
  throw Failure(ExitCode::driver, "--device " + to_string(*placement) + ": the driver has " +
                                      std::to_string(count) +
                                      (count == 1 ? " device" : " devices") +
                                      ", numbered from 0; see sample_host doctor");
}

// What a graph file says of a plug-in's name is an error of the plug-in, with its place.
Choice choose_plugin(Broker& broker, const GraphPlan& plan, const PlannedNode& node,
                     const Options& options, std::optional<ScanResult>& found) {
  try {
    if (!node.plugin.library.empty()) return load_choice(broker, node.plugin);
    if (!found) found = scan_plugins(options);
    return find_choice(broker, *found, node.plugin.plugin);
  } catch (const Failure& failure) {
    throw Failure(failure, plan.is_row() ? "" : node.where);
  }
}

std::vector<Choice> choose_plugins(Broker& broker, const Options& options, const GraphPlan& plan) {
  std::optional<ScanResult> found;  // only when a name needs it
  std::vector<Choice> choices;
  for (const PlannedNode& node : plan.nodes) {
    choices.push_back(choose_plugin(broker, plan, node, options, found));
  }
  return choices;
}

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

void apply_settings(const PlannedNode& node, PluginInstance& instance) {
  const PluginDescription& plugin = instance.description();
  for (const auto& [id, text] : node.plugin.settings) {
    try {
      if (plugin.parameters[plugin.parameter_index(id)].is_text()) {
        instance.set_text(id, text);
      } else {
        instance.set_parameter(id, instance.from_text(id, text));
      }
    } catch (const Error& error) {
      throw Failure(error, node.where);
    }
  }
}

std::vector<Preset> read_presets(const Options& options, const std::vector<Choice>& choices) {
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
    if (std::any_of(choices.begin(), choices.end(),
                    [&](const Choice& choice) { return choice.description->id == id; })) {
      continue;
    }
    throw Failure(ExitCode::usage, "--preset \"" + path.string() + "\": it is for plug-in " + id +
                                       ", which is not used here; use it, or leave the preset out");
  }
  return presets;
}

void apply_presets(const std::vector<Preset>& presets, PluginInstance& instance) {
  for (const Preset& preset : presets) {
    if (preset.plugin != instance.description().id) continue;
    for (const PresetRemark& remark : load_preset(instance, preset)) {
      log(Severity::warning, "preset", remark.text);
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
    why = "it only gives results, which sample_host writes to no file";
  } else if (!plugin.inputs.empty()) {
    why = !has_one_input ? "it needs the inputs " + needed : "its first output gives results";
  }
  throw Failure(ExitCode::usage, node.where + plugin.id + " cannot run in a row; " + why +
                                     (has_media ? ". Connect it with a graph file (--graph)"
                                                : ". A host of your own can take them"));
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
void check_outputs(const GraphPlan& plan, const std::vector<Choice>& choices) {
  std::vector<const PluginDescription*> plugins;
  for (const Choice& choice : choices) plugins.push_back(choice.description);
  for (const PlannedEnd& end : plan.outputs) {
    const PortDescription* const port = port_before(plan, end.name, plugins);
    if (port == nullptr || (port->result_bytes != 0) == end.is_results()) continue;
    throw Failure(
        ExitCode::usage,
        plan.document + ": $.outputs." + end.name + ": " +
            (end.is_results()
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
  const char* const hint = "; \"channels\" sets how many an end has";
  for (const PlannedEnd& end : plan.inputs) {
    if (!says("the input \"" + end.name + "\" has ")) continue;
    return text.insert(0, "$.inputs." + end.name + ": ").append(hint);
  }
  for (const PlannedEnd& end : plan.outputs) {
    if (!says("the output \"" + end.name + "\"")) continue;
    if (says("the output \"" + end.name + "\" takes ")) text.append(hint);
    return text.insert(0, "$.outputs." + end.name + ": ");
  }
  return text;
}

GraphDescription describe(const GraphPlan& plan, std::vector<PluginInstance>& instances,
                          const EndFormats& formats) {
  GraphDescription description;
  const auto add_ends = [&](const std::vector<PlannedEnd>& ends,
                            const std::vector<std::uint32_t>& channels, std::vector<GraphEnd>& to) {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      GraphEnd end;
      end.name = ends[i].name;
      end.channels = channels[i];
      end.samples = formats.samples;
      to.push_back(std::move(end));
    }
  };
  add_ends(plan.inputs, formats.input_channels, description.inputs);
  add_ends(plan.outputs, formats.output_channels, description.outputs);
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    description.nodes.push_back({plan.nodes[i].name, &instances[i]});
  }
  description.edges = plan.edges;
  return description;
}

}  // namespace

// After a failure too, so that the strikes are told.
Session::~Session() {
  graph_.reset();
  instances_.clear();  // what they leave behind is a strike
  try {
    tell_strikes(broker_.metrics());
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for some words
  }
}

Session::Session(const Options& options, const GraphPlan& plan, Media media)
    : plan_(plan), broker_(open_broker(options)) {
  graph_options_.measure = true;  // the table and the report tell the time
  graph_options_.jobs_in_flight = static_cast<std::uint32_t>(options.jobs);
  check_device(broker_, options.device);
  const std::vector<Choice> choices = choose_plugins(broker_, options, plan);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    check_media(plan.nodes[i], *choices[i].description, media);
    if (plan.is_row()) check_ports(plan.nodes[i], *choices[i].description);
    check_settings(plan.nodes[i], *choices[i].description);
  }
  if (!plan.is_row()) check_outputs(plan, choices);
  check_automation(choices);
  const std::vector<Preset> presets = read_presets(options, choices);
  InstanceOptions instance_options;
  instance_options.device = options.device;
  instance_options.lease = options.lease;
  instance_options.job_graphs = options.graphs;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    libraries_.push_back(choices[i].library);
    instances_.push_back(
        broker_.create(choices[i].library, choices[i].description->id, instance_options));
    apply_presets(presets, instances_.back());
    apply_settings(plan.nodes[i], instances_.back());
  }
}

void Session::save_preset(const Options& options) const {
  if (options.save_preset.empty()) return;
  std::error_code none;
  const std::filesystem::path folder = options.save_preset.parent_path();
  if (!folder.empty() && !std::filesystem::exists(folder, none)) {
    throw Failure(ExitCode::output, "--save-preset \"" + options.save_preset.string() +
                                        "\": there is no folder \"" + folder.string() +
                                        "\"; create it, or name another one");
  }
  write_preset(ctxbroker::save_preset(instances_[0]), options.save_preset);
}

std::uint32_t Session::result_bytes(std::size_t output) const {
  std::vector<const PluginDescription*> plugins;
  for (const PluginInstance& instance : instances_) plugins.push_back(&instance.description());
  const PortDescription* const port = port_before(plan_, plan_.outputs[output].name, plugins);
  return port == nullptr ? 0 : port->result_bytes;
}

bool Session::wants_restart() const {
  return std::any_of(instances_.begin(), instances_.end(),
                     [](const PluginInstance& one) { return one.restart_requested(); });
}

void Session::tell_of_restarts() const {
  for (const PluginInstance& instance : instances_) {
    if (!instance.restart_requested()) continue;
    log(Severity::warning, "plugin",
        instance.description().short_name +
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
  return std::all_of(instances_.begin(), instances_.end(), [&](const PluginInstance& instance) {
    const auto all_take = [&](const std::vector<PortDescription>& ports) {
      const auto end =
          ports.begin() + static_cast<std::ptrdiff_t>(std::min(most_ports, ports.size()));
      return std::all_of(ports.begin(), end, takes);
    };
    return all_take(instance.description().inputs) && all_take(instance.description().outputs);
  });
}

void Session::activate(const ActivationSizes& sizes, const EndFormats& formats) {
  graph_.reset();
  std::vector<PluginInstance*> row;
  for (PluginInstance& instance : instances_) {
    instance.deactivate();
    instance.activate(sizes);
    row.push_back(&instance);
  }
  if (plan_.is_row()) {
    graph_.emplace(broker_, row, sizes, graph_options_, formats.samples);
    return;
  }
  try {
    graph_.emplace(broker_, describe(plan_, instances_, formats), sizes, graph_options_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    throw Failure(ExitCode::usage, plan_.document + ": " + place_of(plan_, error.message()));
  }
}

std::vector<DeviceInfo> Session::devices() const {
  std::vector<DeviceInfo> devices;
  for (const PluginInstance& instance : instances_) {
    const int device = instance.lease().device;
    const auto same = [&](const DeviceInfo& one) { return one.ordinal == device; };
    if (std::any_of(devices.begin(), devices.end(), same)) continue;
    devices.push_back(broker_.devices()[static_cast<std::size_t>(device)]);
  }
  return devices;
}

// Nodes of a row have the names that the broker gives them.
void Session::check_automation(const std::vector<Choice>& choices) {
  if (plan_.automation.empty()) return;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    std::string name = plan_.nodes[i].name;
    if (plan_.is_row()) {
      name = choices[i].description->short_name;
      const auto same =
          std::count_if(choices.begin(), choices.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](const Choice& one) { return one.description->short_name == name; });
      if (same != 0) name += '_' + std::to_string(same + 1);
    }
    names.push_back(std::move(name));
  }
  for (AutomationLine& line : read_automation(plan_.automation)) {
    const auto name = std::find(names.begin(), names.end(), line.node);
    if (name == names.end()) {
      throw Failure(ExitCode::usage, line.where + "there is no node \"" + line.node +
                                         "\"; there are: " + join(names));
    }
    Change change{line, static_cast<std::size_t>(name - names.begin()), 0, 0};
    const PluginDescription& plugin = *choices[change.node].description;
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
    changes_.push_back(std::move(change));
  }
  constexpr std::size_t most = 65536;  // of GraphOptions
  graph_options_.changes_per_job = static_cast<std::uint32_t>(std::min(changes_.size(), most));
}

std::vector<AutomationPoint> Session::automation(double rate) {
  std::vector<AutomationPoint> points;
  for (const Change& change : changes_) {
    AutomationPoint point;
    point.instance = &instances_[change.node];
    point.parameter = change.parameter;
    const std::uint64_t late = graph_ ? graph_->latency_before(change.node) : 0;
    point.begin = std::llround(change.line.time * rate) + static_cast<std::int64_t>(late);
    point.ramp_frames = static_cast<std::uint32_t>(
        std::min<std::int64_t>(std::llround(change.line.ramp * rate), UINT32_MAX));
    point.value = change.value;
    point.from = point.instance->parameter(change.line.parameter);
    points.push_back(point);
  }
  return prepare_automation(std::move(points));
}

}  // namespace ctxbroker::sample_host
