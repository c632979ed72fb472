// SPDX-License-Identifier: Apache-2.0
// Plug-ins in a worker process: what --isolate asks for, and --on-fault=move after a fault. If it
// ends, the command ends with an error that names the plug-in.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "automation.hpp"
#include "catalogue.hpp"
#include "ctxbroker/policy.hpp"
#include "ctxbroker/version.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "engine.hpp"
#include "exit_code.hpp"
#include "logging.hpp"
#include "process/environment.hpp"

namespace ctxbroker::sample_host {

namespace {

WorkerGraphDescription describe_graph(const Options& options, const GraphPlan& plan) {
  std::optional<ScanResult> found;  // only when a name needs it
  WorkerGraphDescription description;
  // The formats of the ports are known when the graph is activated.
  description.inputs = graph_ports(plan.inputs, {}, SampleType::float32);
  description.outputs = graph_ports(plan.outputs, {}, SampleType::float32);
  for (const PlannedNode& planned : plan.nodes) {
    WorkerNode node;
    node.name = planned.name;
    node.options.device = options.device;
    node.options.lease = options.lease;
    node.options.job_graphs = options.graphs;
    in_node(plan, planned, [&] {
      node.plugin = planned.plugin.plugin;
      node.library = planned.plugin.library;
      if (!node.library.empty()) {
        check_library(planned.plugin);
      } else {
        if (!found) found = scan_plugins(options);
        const PluginDescription& chosen = find_plugin(*found, planned.plugin.plugin);
        node.library = chosen.library_path;
        node.plugin = chosen.id;
      }
      return 0;
    });
    description.nodes.push_back(std::move(node));
  }
  description.edges = plan.edges;
  return description;
}

// All variables of this process, as they were before plug-ins came, because a plug-in may read its
// own ones, for example for a licence. But the worker does not share this process's MPS server: a
// fault would reach all clients.
std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (const std::string& entry : detail::kept_environment()) {
    if (entry.find('=', 1) != std::string::npos && entry.front() != '=' &&
        !entry.starts_with("CUDA_MPS_PIPE_DIRECTORY=")) {
      all.push_back(entry);
    }
  }
  return all;
}

WorkerGraphOptions worker_options(const Options& options, const GraphPlan& plan) {
  // Without --job-timeout there has to be some time after which the worker hangs.
  constexpr std::chrono::milliseconds patience{60'000}, more{2'000};
  const std::chrono::milliseconds limit(options.job_timeout);
  WorkerGraphOptions made;
  made.worker.name = "sample_host";
  made.host_name = "sample_host";
  made.host_version = version();
  made.worker.environment = own_environment();
  made.worker.start_timeout = patience;
  made.worker.call_timeout = limit.count() != 0 ? limit + more : patience;
  made.worker.heartbeat_timeout = std::chrono::milliseconds(10'000);
  // Its end is the command's error, and needs no record.
  made.worker.records = [sink = record_sink()](const Record& record) {
    if (record.severity != Severity::error || std::string_view(record.topic) != "worker") {
      sink(record);
    }
  };
  if (options.isolate) made.grouping = *options.isolate;
  made.graph.measure = true;
  made.graph.jobs_in_flight = static_cast<std::uint32_t>(options.jobs);
  made.graph.changes_per_job = plan.automation.empty() ? 0 : most_changes;
  made.driver = options.driver;
  made.policy = options.policy;
  made.job_timeout = limit;
  if (!options.trace.empty()) made.timeline = TimelineOptions{trace_memory};
  return made;
}

// Returns whether the user wants plug-ins in this process.
bool has_some_in_host(const Options& options) {
  if (options.isolate == WorkerGrouping::in_host) return true;
  if (options.policy.empty()) return false;
  const Policy policy = read_policy(options.policy);
  return policy.for_all.process == WorkerGrouping::in_host ||
         std::any_of(policy.by_id.begin(), policy.by_id.end(),
                     [](const auto& one) { return one.second.process == WorkerGrouping::in_host; });
}

class InWorker final : public Engine {
 public:
  InWorker(const Options& options, const GraphPlan& plan) : nodes_(plan.nodes.size()) {
    if (has_some_in_host(options)) broker_.emplace(open_broker(options));
    WorkerGraphOptions with = worker_options(options, plan);
    with.broker = broker_ ? &*broker_ : nullptr;
    told([&] { graph_.emplace(describe_graph(options, plan), with); });
    if (options.trace.empty() || graph_->processes() == 1) return;
    throw Failure(ExitCode::usage,
                  "--trace writes the timeline of one process, and the plug-ins "
                  "are in " +
                      std::to_string(graph_->processes()) +
                      "; use --isolate=together, and a policy without \"process\"");
  }
  InWorker(const Options& options, const GraphPlan& plan, Graph&& graph)
      : nodes_(plan.nodes.size()) {
    // A timeline is that of one process.
    const std::size_t in_one = options.trace.empty() ? 0 : nodes_;
    told([&] {
      graph_ = WorkerGraph::from(std::move(graph), worker_options(options, plan),
                                 std::vector(in_one, WorkerGrouping::together));
    });
  }

  const PluginDescription& description(std::size_t node) const override {
    return graph_->description(node);
  }
  void create() override {}  // it is done

  void set_parameter(std::size_t node, const std::string& id,
                     const ParameterValue& value) override {
    told([&] { graph_->set_parameter(node, id, value); });
  }
  void set_text(std::size_t node, const std::string& id, const std::string& text) override {
    told([&] { graph_->set_text(node, id, text); });
  }
  ParameterValue from_text(std::size_t node, const std::string& id,
                           const std::string& text) override {
    return told([&] { return graph_->from_text(node, id, text); });
  }
  ParameterValue parameter_value(std::size_t node, const std::string& id) const override {
    return graph_->parameter_value(node, id);
  }
  std::string text(std::size_t node, const std::string& id) const override {
    return graph_->text(node, id);
  }
  Preset save_preset(std::size_t node) override {
    return told([&] { return graph_->save_preset(node); });
  }
  std::vector<PresetRemark> load_preset(std::size_t node, const Preset& preset) override {
    return told([&] { return graph_->load_preset(node, preset); });
  }
  bool restart_requested(std::size_t node) override {
    return told([&] { return graph_->node_state(node).restart_requested; });
  }

  void activate(const ActivationSizes& sizes, const EndFormats& formats, std::uint32_t) override {
    told([&] {
      graph_->activate(sizes,
                       with_formats(graph_->inputs(), formats.input_channels, formats.samples),
                       with_formats(graph_->outputs(), formats.output_channels, formats.samples));
    });
  }
  const std::vector<JobInput>& job_inputs() override { return graph_->job_inputs(); }
  std::vector<ImageRegion> input_regions(const JobInfo& job) override {
    return told([&] { return graph_->input_regions(job); });
  }
  std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job,
                       const WorkerJobEvents& events) override {
    return told([&] { return graph_->submit(buffers, job, events); });
  }
  void finish(std::uint64_t job) override {
    told([&] { graph_->finish(job); });
  }
  std::uint64_t latency_frames() override { return graph_->latency_frames(); }
  std::uint64_t latency_before(std::size_t node) override {
    return graph_->active() ? graph_->latency_before(node) : 0;
  }
  void poll() override {  // a worker does it with each message
    if (broker_) broker_->poll();
  }

  DriverInfo driver() override { return graph_->driver(); }
  std::vector<DeviceInfo> devices() override { return graph_->devices(); }
  LeaseInfo lease(std::size_t node) override {
    LeaseInfo lease = told([&] { return graph_->node_state(node).lease; });
    lease.tenant = in_process(lease.tenant, process_of(node));
    return lease;
  }
  Metrics metrics(std::size_t node) override {
    return told([&] { return graph_->node_state(node).metrics; });
  }
  BrokerMetrics all_metrics() override {
    BrokerMetrics all;
    for (const std::size_t node : one_of_each_process()) {
      BrokerMetrics its = told([&] { return graph_->metrics(node); });
      for (TenantMetrics& tenant : its.tenants) {
        tenant.id = in_process(tenant.id, process_of(node));
        all.tenants.push_back(std::move(tenant));
      }
      for (PutOffMetrics& put_off : its.put_off) {
        put_off.tenant = in_process(put_off.tenant, process_of(node));
        all.put_off.push_back(std::move(put_off));
      }
    }
    return all;
  }
  TimelineSummary write_timeline(const TimelineSink& sink) override {
    return told([&] { return graph_->write_timeline(sink); });
  }
  // Returns empty metrics after the worker has ended, because nothing is known of it then.
  BrokerMetrics end() override {
    BrokerMetrics last;
    if (!first_exit()) {
      graph_->deactivate();  // what they leave behind is a strike
      last = all_metrics();
    }
    graph_.reset();
    return last;
  }

 private:
  // Marks the end of the worker, so that the exit code says that it was a plug-in.
  template <typename Work>
  std::invoke_result_t<Work> told(const Work& work) {
    try {
      return work();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::context_lost) throw;
      const auto end = graph_ ? first_exit() : std::nullopt;
      if (!end && broker_) throw;  // of a plug-in in this process
      if (!end) throw Error(ErrorKind::context_lost, error.message(), {.call = worker_process});
      std::string library;
      if (!end->running.empty()) {
        library = std::filesystem::path(end->running.front().library).stem().string();
      }
      // --job-timeout limits jobs, and no activation.
      const bool is_late_job = end->cause == WorkerExitCause::late && graph_->active();
      const bool is_fault = end->cause == WorkerExitCause::cuda_ended;
      throw Error(ErrorKind::context_lost, end->text,
                  {.call = is_late_job ? late_worker_process
                           : is_fault  ? faulted_worker_process
                                       : worker_process,
                   .tenant = library});
    }
  }

  // This process has one number, even if the graph goes through it several times.
  std::size_t process_of(std::size_t node) const {
    std::size_t first = node;
    if (graph_->process_id(node) == ::getpid()) {
      for (first = 0; graph_->process_id(first) != ::getpid();) ++first;
    }
    return graph_->process_of(first);
  }

  std::vector<std::size_t> one_of_each_process() const {
    std::map<std::size_t, std::size_t> nodes;
    for (std::size_t node = 0; node < nodes_; ++node) nodes.emplace(process_of(node), node);
    std::vector<std::size_t> all;
    all.reserve(nodes.size());
    for (const auto& [process, node] : nodes) all.push_back(node);
    return all;
  }

  // The command ends after the first end of a process.
  std::optional<WorkerExit> first_exit() const {
    for (const std::size_t node : one_of_each_process()) {
      if (auto end = graph_->last_exit(node)) return end;
    }
    return {};
  }

  // Tenants of different processes have different ids here.
  static TenantId in_process(TenantId tenant, std::size_t process) {
    constexpr std::uint32_t tenants = 1U << 20U;  // of one process
    tenant.value += static_cast<std::uint32_t>(process) * tenants;
    return tenant;
  }

  static std::vector<GraphPort> with_formats(std::vector<GraphPort> ports,
                                             const std::vector<std::uint32_t>& channels,
                                             SampleType samples) {
    for (std::size_t i = 0; i < ports.size(); ++i) {
      ports[i].channels = channels.empty() ? 0 : channels[i];
      ports[i].samples = samples;
    }
    return ports;
  }

  std::size_t nodes_;
  std::optional<Broker> broker_;  // for plug-ins in this process
  std::optional<WorkerGraph> graph_;
};

}  // namespace

std::unique_ptr<Engine> engine_in_worker(const Options& options, const GraphPlan& plan) {
  return std::make_unique<InWorker>(options, plan);
}

std::unique_ptr<Engine> engine_in_worker(const Options& options, const GraphPlan& plan,
                                         Graph&& graph) {
  return std::make_unique<InWorker>(options, plan, std::move(graph));
}

}  // namespace ctxbroker::sample_host
