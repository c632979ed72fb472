// SPDX-License-Identifier: Apache-2.0
// Plug-ins in this process.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "catalogue.hpp"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/version.hpp"
#include "engine.hpp"
#include "exit_code.hpp"
#include "logging.hpp"

namespace ctxbroker::sample_host {

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

namespace {

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

class InHost final : public Engine {
 public:
  InHost(const Options& options, const GraphPlan& plan)
      : options_(options), plan_(plan), broker_(open_broker(options)) {
    check_device(broker_, options.device);
    std::optional<ScanResult> found;  // only when a name needs it
    for (const PlannedNode& node : plan.nodes) {
      choices_.push_back(in_node(plan, node, [&] {
        if (!node.plugin.library.empty()) return load_choice(broker_, node.plugin);
        if (!found) found = scan_plugins(options);
        return find_choice(broker_, *found, node.plugin.plugin);
      }));
    }
  }

  const PluginDescription& description(std::size_t node) const override {
    return *choices_[node].description;
  }

  void create() override {
    InstanceOptions instance_options;
    instance_options.device = options_.device;
    instance_options.lease = options_.lease;
    instance_options.job_graphs = options_.graphs;
    for (const Choice& choice : choices_) {
      instances_.push_back(
          broker_.create(choice.library, choice.description->id, instance_options));
    }
  }

  void set_parameter(std::size_t node, const std::string& id,
                     const ParameterValue& value) override {
    instances_[node].set_parameter(id, value);
  }
  void set_text(std::size_t node, const std::string& id, const std::string& text) override {
    instances_[node].set_text(id, text);
  }
  ParameterValue from_text(std::size_t node, const std::string& id,
                           const std::string& text) override {
    return instances_[node].from_text(id, text);
  }
  ParameterValue parameter_value(std::size_t node, const std::string& id) const override {
    return instances_[node].parameter_value(id);
  }
  std::string text(std::size_t node, const std::string& id) const override {
    return instances_[node].text(id);
  }
  Preset save_preset(std::size_t node) override { return ctxbroker::save_preset(instances_[node]); }
  std::vector<PresetRemark> load_preset(std::size_t node, const Preset& preset) override {
    return ctxbroker::load_preset(instances_[node], preset);
  }
  bool restart_requested(std::size_t node) override { return instances_[node].restart_requested(); }

  void activate(const ActivationSizes& sizes, const EndFormats& formats,
                std::uint32_t changes_per_job) override {
    graph_.reset();
    GraphOptions graph_options;
    graph_options.measure = true;  // the table and the report tell the time
    graph_options.jobs_in_flight = static_cast<std::uint32_t>(options_.jobs);
    graph_options.changes_per_job = changes_per_job;
    std::vector<PluginInstance*> row;
    GraphDescription description;
    for (std::size_t i = 0; i < instances_.size(); ++i) {
      instances_[i].deactivate();
      instances_[i].activate(sizes);
      row.push_back(&instances_[i]);
      description.nodes.push_back({plan_.nodes[i].name, &instances_[i]});
    }
    if (plan_.is_row()) {
      graph_.emplace(broker_, row, sizes, graph_options, formats.samples);
      return;
    }
    description.inputs = graph_ports(plan_.inputs, formats.input_channels, formats.samples);
    description.outputs = graph_ports(plan_.outputs, formats.output_channels, formats.samples);
    description.edges = plan_.edges;
    graph_.emplace(broker_, description, sizes, graph_options);
  }
  const std::vector<JobInput>& job_inputs() override { return graph_->job_inputs(); }
  std::vector<ImageRegion> input_regions(const JobInfo& job) override {
    return graph_->input_regions(job);
  }
  std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job,
                       const WorkerJobEvents& events) override {
    events_.transport = events.transport;
    events_.changes.clear();
    for (const WorkerParameterChange& one : events.changes) {
      events_.changes.push_back(
          {&instances_[one.node], one.parameter, one.offset, one.value, one.ramp_frames, one.from});
    }
    return graph_->submit(buffers, job, events_);
  }
  void finish(std::uint64_t job) override { graph_->finish(job); }
  std::uint64_t latency_frames() override { return graph_->latency_frames(); }
  std::uint64_t latency_before(std::size_t node) override {
    return graph_ ? graph_->latency_before(node) : 0;
  }
  void poll() override { broker_.poll(); }
  void begin_realtime() override { broker_.begin_realtime(); }
  void end_realtime() override { broker_.end_realtime(); }

  DriverInfo driver() override { return broker_.driver(); }
  std::vector<DeviceInfo> devices() override { return broker_.devices(); }
  LeaseInfo lease(std::size_t node) override { return instances_[node].lease(); }
  Metrics metrics(std::size_t node) override { return instances_[node].metrics(); }
  BrokerMetrics all_metrics() override { return broker_.metrics(); }
  TimelineSummary write_timeline(const TimelineSink& sink) override {
    return broker_.write_timeline(sink);
  }
  std::unique_ptr<Engine> move_to_worker() override {
    const auto is_ended = [](const PluginInstance& one) {
      return one.lease().state == LeaseState::ended;
    };
    if (!graph_ || std::none_of(instances_.begin(), instances_.end(), is_ended)) return nullptr;
    return engine_in_worker(options_, plan_, std::move(*graph_));
  }
  BrokerMetrics end() override {
    graph_.reset();
    instances_.clear();  // what they leave behind is a strike
    return broker_.metrics();
  }

 private:
  const Options& options_;
  const GraphPlan& plan_;
  Broker broker_;  // it outlives everything below
  std::vector<Choice> choices_;
  std::vector<PluginInstance> instances_;
  std::optional<Graph> graph_;
  JobEvents events_;
};

}  // namespace

std::unique_ptr<Engine> engine_in_host(const Options& options, const GraphPlan& plan) {
  return std::make_unique<InHost>(options, plan);
}

}  // namespace ctxbroker::sample_host
