// SPDX-License-Identifier: Apache-2.0
// Plug-ins of a WorkerGraph in the host's process, in the host's broker.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugin/access.hpp"
#include "worker/graph_segment.hpp"
#include "worker/loaded_nodes.hpp"
#include "worker/shared_devices.hpp"

namespace ctxbroker::detail {

// A preset of what moves to another process. If the state cannot be saved, a record says so.
Preset saved_or_warned(Instance& instance);

class HostSegment final : public GraphSegment {
 public:
  // Borrows the broker. Throws what Broker::load and Broker::create throw.
  HostSegment(Broker& broker, WorkerGraphDescription description, const GraphOptions& options);

  const PluginDescription& description(std::size_t node) const override {
    return at(node).description();
  }
  const DriverInfo& driver() const override { return broker_.driver(); }
  const std::vector<DeviceInfo>& devices() const override { return broker_.devices(); }
  WorkerNodeState node_state(std::size_t node) override;
  BrokerMetrics metrics() override { return broker_.metrics(); }
  TimelineSummary write_timeline(const TimelineSink& sink) override {
    return broker_.write_timeline(sink);
  }
  void poll() override { broker_.poll(); }

  void set_parameter(std::size_t node, std::string_view id, const ParameterValue& value) override {
    at(node).set_parameter(id, value);
  }
  void set_text(std::size_t node, std::string_view id, std::string_view text) override {
    at(node).set_text(id, text);
  }
  ParameterValue parameter_value(std::size_t node, std::string_view id) const override {
    return at(node).parameter_value(id);
  }
  std::string text(std::size_t node, std::string_view id) const override {
    return at(node).text(id);
  }
  ParameterValue from_text(std::size_t node, std::string_view id, std::string_view text) override {
    return at(node).from_text(id, text);
  }
  std::string to_text(std::size_t node, std::string_view id, const ParameterValue& value) override {
    return at(node).to_text(id, value);
  }
  Preset save_preset(std::size_t node) override { return ctxbroker::save_preset(at(node)); }
  std::vector<PresetRemark> load_preset(std::size_t node, const Preset& preset) override {
    return ctxbroker::load_preset(at(node), preset);
  }
  Preset last_preset(std::size_t node) const override {
    return saved_or_warned(Access::of(at(node)));
  }

  void activate(const ActivationSizes& sizes, std::vector<GraphPort> inputs,
                std::vector<GraphPort> outputs) override;
  void deactivate() override;
  bool get_ready() override { return true; }
  void mark_discontinuity() noexcept override { discontinuity_ = true; }

  const std::vector<JobInput>& job_inputs() const override { return graph().job_inputs(); }
  std::vector<ImageRegion> output_extents(const JobInfo& job) override {
    return graph().output_extents(job);
  }
  std::vector<ImageRegion> input_regions(const JobInfo& job) override {
    return graph().input_regions(job);
  }
  std::uint64_t latency_frames() const override { return graph().latency_frames(); }
  std::uint64_t latency_before(std::size_t node) const override {
    return graph().latency_before(node);
  }

  WorkerBuffer lend(std::size_t bytes) override;
  WorkerBuffer lend(std::shared_ptr<HostPages> pages) override;
  WorkerDeviceBuffer lend(const ctxbroker::DeviceMemory& memory) override;
  void make_relay(const void* name, std::uint64_t bytes, int device) override;
  Descriptor release_relay(const void* name) override;
  void take_relay(Descriptor file, const void* name, std::uint64_t bytes, int device) override;
  std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job,
                       const WorkerJobEvents& events) override;
  JobOutcome finish(std::uint64_t job) override;
  bool is_done(std::uint64_t job) override;
  JobOutcome process(const JobBuffers& buffers, const JobInfo& job,
                     const WorkerJobEvents& events) override {
    return finish(submit(buffers, job, events));
  }
  bool can_repeat(const JobInfo&, const Error&) const override { return false; }
  bool has_jobs() const noexcept override { return submitted_ != finished_; }
  bool is_lent(const void* buffer) const override;
  std::shared_ptr<WorkerImpl> worker() const override { return nullptr; }

 private:
  struct Relay {
    ctxbroker::DeviceMemory memory;
    Descriptor file;  // if it was made here, until it is passed on
  };

  const PluginInstance& at(std::size_t node) const;
  PluginInstance& at(std::size_t node) {
    return const_cast<PluginInstance&>(std::as_const(*this).at(node));
  }
  void check_submitted(std::uint64_t job) const;
  const JobBuffers& there(const JobBuffers& buffers);
  const Graph& graph() const;
  Graph& graph() { return const_cast<Graph&>(std::as_const(*this).graph()); }

  Broker& broker_;
  WorkerGraphDescription description_;
  const GraphOptions options_;
  std::vector<LoadedNode> nodes_;
  SharedDevices devices_;
  std::map<const void*, Relay> relays_;  // by their names
  std::optional<Graph> graph_;           // after what it uses
  bool discontinuity_ = false;
  // The last jobs, by their numbers. A graph counts anew with each activation.
  std::uint64_t submitted_ = 0, finished_ = 0, before_activation_ = 0;
  std::vector<std::shared_ptr<LentBlock>> lent_;
  // Data of the last job, kept so that the next one allocates nothing.
  JobInfo job_;
  JobBuffers buffers_;
  JobEvents events_;
};

}  // namespace ctxbroker::detail
