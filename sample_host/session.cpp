#include "session.hpp"

#include <algorithm>

#include "ctxbroker/version.hpp"
#include "exit_code.hpp"
#include "logging.hpp"

namespace ctxbroker::sample_host {

namespace {

constexpr std::size_t trace_memory = std::size_t{256} << 20;  // bytes

Broker open_broker(const Options& options) {
  BrokerOptions broker_options;
  broker_options.host_name = "sample_host";
  broker_options.host_version = version();
  broker_options.driver = options.driver;
  broker_options.records = record_sink();
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

std::vector<Choice> choose_plugins(Broker& broker, const Options& options,
                                   const std::vector<PluginArgument>& arguments) {
  std::optional<Catalogue> catalogue;  // loads every library there is: only when a name needs it
  std::vector<Choice> choices;
  for (const PluginArgument& argument : arguments) {
    if (!argument.library.empty()) {
      choices.push_back(load_choice(broker, argument));
      continue;
    }
    if (!catalogue) catalogue.emplace(broker, plugin_folders(options.plugin_path));
    choices.push_back(catalogue->find(argument.plugin));
    for (const std::string& text : catalogue->passed_over(choices.back().description->id)) {
      log(Severity::warning, "plugin", text);
    }
  }
  return choices;
}

struct Setting {
  std::string parameter;
  double value = 0;
};

std::vector<Setting> check_settings(const PluginArgument& argument,
                                    const PluginDescription& plugin) {
  std::vector<Setting> settings;
  for (const auto& [parameter, text] : argument.settings) {
    try {
      const std::size_t index = plugin.parameter_index(parameter);
      settings.push_back({parameter, plugin.parameters[index].parse(text)});
    } catch (const Error& error) {
      throw Failure(exit_code_of(error.kind()),
                    "--plugin \"" + argument.text + "\": " + error.what());
    }
  }
  return settings;
}

void check_media(const PluginArgument& argument, const PluginDescription& plugin, Media media) {
  if (plugin.media == media) return;
  throw Failure(ExitCode::usage, "--plugin \"" + argument.text + "\": " + plugin.id + " is for " +
                                     to_string(plugin.media) + "; use it with sample_host " +
                                     to_string(plugin.media));
}

// Each plug-in gets what the one before it put out, and nothing else.
void check_ports(const PluginArgument& argument, const PluginDescription& plugin) {
  std::string needed;
  for (const PortDescription& input : plugin.inputs) {
    if (!input.optional) needed += (needed.empty() ? "" : ", ") + input.id;
  }
  const bool has_one_input = !plugin.inputs.empty() && needed.find(',') == std::string::npos;
  if (has_one_input && plugin.outputs[0].result_bytes == 0) return;
  throw Failure(
      ExitCode::usage,
      "--plugin \"" + argument.text + "\": " + plugin.id + " cannot run in a row; " +
          (plugin.inputs.empty() ? "it has no input"
           : !has_one_input      ? "it needs the inputs " + needed
                            : "its first output is no " + std::string(to_string(plugin.media))) +
          ". Use it in a Graph of your own host");
}

}  // namespace

std::vector<PluginArgument> parse_plugin_arguments(const Options& options) {
  std::vector<PluginArgument> arguments;
  for (const std::string& text : options.plugins) arguments.push_back(parse_plugin_argument(text));
  return arguments;
}

Session::Session(const Options& options, const std::vector<PluginArgument>& arguments, Media media)
    : broker_(open_broker(options)) {
  check_device(broker_, options.device);
  const std::vector<Choice> choices = choose_plugins(broker_, options, arguments);
  std::vector<std::vector<Setting>> settings;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    check_media(arguments[i], *choices[i].description, media);
    check_ports(arguments[i], *choices[i].description);
    settings.push_back(check_settings(arguments[i], *choices[i].description));
  }
  InstanceOptions instance_options;
  instance_options.device = options.device;
  instance_options.lease = options.lease;
  instance_options.job_graphs = options.graphs;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    libraries_.push_back(choices[i].library);
    instances_.push_back(
        broker_.create(choices[i].library, choices[i].description->id, instance_options));
    for (const Setting& setting : settings[i]) {
      instances_.back().set_parameter(setting.parameter, setting.value);
    }
  }
}

bool Session::takes_halves() const {
  const auto takes = [](const PortDescription& port) {
    return (port.samples & static_cast<std::uint32_t>(SampleType::float16)) != 0;
  };
  return std::all_of(instances_.begin(), instances_.end(), [&](const PluginInstance& instance) {
    const PluginDescription& plugin = instance.description();
    return takes(plugin.inputs[0]) && takes(plugin.outputs[0]);
  });
}

void Session::activate(const ActivationSizes& sizes, SampleType samples) {
  graph_.reset();
  std::vector<PluginInstance*> stages;
  for (PluginInstance& instance : instances_) {
    instance.deactivate();
    instance.activate(sizes);
    stages.push_back(&instance);
  }
  GraphOptions graph_options;
  graph_options.measure = true;  // the table and the report tell the time
  graph_.emplace(broker_, stages, sizes, graph_options, samples);
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

std::uint64_t Session::latency_frames() const {
  std::uint64_t frames = 0;
  for (const PluginInstance& instance : instances_) frames += instance.latency_frames();
  return frames;
}

}  // namespace ctxbroker::sample_host
