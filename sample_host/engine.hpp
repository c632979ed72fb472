// SPDX-License-Identifier: Apache-2.0
// The plug-ins' place: in this process, or in a worker process (--isolate, and after a fault
// --on-fault=move). Session does not know which.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ctxbroker/device.hpp"
#include "ctxbroker/driver.hpp"
#include "ctxbroker/metrics.hpp"
#include "ctxbroker/preset.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "exit_code.hpp"
#include "graph_plan.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

constexpr std::size_t trace_memory = std::size_t{256} << 20;  // bytes, for --trace

// The formats of what the host gives and gets.
struct EndFormats {
  std::vector<std::uint32_t> input_channels, output_channels;  // of each port; 0: as usual
  SampleType samples = SampleType::float32;
};

// Nodes are named by their position in the plan. Everything throws Error.
class Engine {
 public:
  Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  virtual ~Engine() = default;

  virtual const PluginDescription& description(std::size_t node) const = 0;
  // The instances, once everything that the user has asked for is checked.
  virtual void create() = 0;

  virtual void set_parameter(std::size_t node, const std::string& id,
                             const ParameterValue& value) = 0;
  virtual void set_text(std::size_t node, const std::string& id, const std::string& text) = 0;
  virtual ParameterValue from_text(std::size_t node, const std::string& id,
                                   const std::string& text) = 0;
  virtual ParameterValue parameter_value(std::size_t node, const std::string& id) const = 0;
  virtual std::string text(std::size_t node, const std::string& id) const = 0;
  virtual Preset save_preset(std::size_t node) = 0;
  virtual std::vector<PresetRemark> load_preset(std::size_t node, const Preset& preset) = 0;
  // A plug-in has asked to be activated again.
  virtual bool restart_requested(std::size_t node) = 0;

  // Connects anew. No jobs are in flight.
  virtual void activate(const ActivationSizes& sizes, const EndFormats& formats,
                        std::uint32_t changes_per_job) = 0;
  // The others are as those of a Graph, after activate.
  virtual const std::vector<JobInput>& job_inputs() = 0;
  virtual std::vector<ImageRegion> input_regions(const JobInfo& job) = 0;
  virtual std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job,
                               const WorkerJobEvents& events) = 0;
  virtual void finish(std::uint64_t job) = 0;
  virtual std::uint64_t latency_frames() = 0;
  virtual std::uint64_t latency_before(std::size_t node) = 0;
  virtual void poll() = 0;
  // Begin and end a real-time session, which counts calls that hold up other plug-ins. Plug-ins in
  // worker processes are not counted.
  virtual void begin_realtime() {}
  virtual void end_realtime() {}

  virtual DriverInfo driver() = 0;
  virtual std::vector<DeviceInfo> devices() = 0;
  virtual LeaseInfo lease(std::size_t node) = 0;
  virtual Metrics metrics(std::size_t node) = 0;
  virtual BrokerMetrics all_metrics() = 0;
  // With --trace.
  virtual TimelineSummary write_timeline(const TimelineSink& sink) = 0;
  // Ends the plug-ins, and returns their last figures.
  virtual BrokerMetrics end() = 0;
  // Returns the same plug-ins in a worker process, active as they are here, if CUDA has ended in
  // this process. Null: it has not, or they are in a worker already. After it has returned an
  // engine or thrown Error, only `end` can be called.
  virtual std::unique_ptr<Engine> move_to_worker() { return nullptr; }
};

// The broker of this process. Throws Error.
Broker open_broker(const Options& options);

// Returns the plan's ports with the channels of this activation, or with the usual ones if none are
// given.
std::vector<GraphPort> graph_ports(const std::vector<PlannedPort>& planned,
                                   const std::vector<std::uint32_t>& channels, SampleType samples);

// Runs `step`, which finds a node's plug-in. What a graph file says of its name is an error of the
// plug-in, with its place.
template <typename Step>
auto in_node(const GraphPlan& plan, const PlannedNode& node, const Step& step) {
  try {
    return step();
  } catch (const Failure& failure) {
    throw Failure(failure, plan.is_row() ? "" : node.where);
  }
}

// Both find the plug-ins of the plan, which is borrowed, and throw Failure or Error. The worker has
// loaded and created them, and this process has not.
std::unique_ptr<Engine> engine_in_host(const Options& options, const GraphPlan& plan);
std::unique_ptr<Engine> engine_in_worker(const Options& options, const GraphPlan& plan);
// Takes a graph over.
std::unique_ptr<Engine> engine_in_worker(const Options& options, const GraphPlan& plan,
                                         Graph&& graph);

}  // namespace ctxbroker::sample_host
