// SPDX-License-Identifier: Apache-2.0
// Some plug-ins of a WorkerGraph, connected among each other: in a process of their own
// (GraphClient), or in the host's (HostSegment). The functions are those of WorkerGraph.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "process/child.hpp"

namespace ctxbroker::detail {

class HostPages;
class WorkerImpl;

class GraphSegment {
 public:
  GraphSegment() = default;
  GraphSegment(const GraphSegment&) = delete;
  GraphSegment& operator=(const GraphSegment&) = delete;
  virtual ~GraphSegment() = default;

  virtual const PluginDescription& description(std::size_t node) const = 0;
  virtual const DriverInfo& driver() const = 0;
  virtual const std::vector<DeviceInfo>& devices() const = 0;
  virtual WorkerNodeState node_state(std::size_t node) = 0;
  virtual BrokerMetrics metrics() = 0;
  virtual TimelineSummary write_timeline(const TimelineSink& sink) = 0;
  virtual void poll() = 0;

  virtual void set_parameter(std::size_t node, std::string_view id,
                             const ParameterValue& value) = 0;
  virtual void set_text(std::size_t node, std::string_view id, std::string_view text) = 0;
  virtual ParameterValue parameter_value(std::size_t node, std::string_view id) const = 0;
  virtual std::string text(std::size_t node, std::string_view id) const = 0;
  virtual ParameterValue from_text(std::size_t node, std::string_view id,
                                   std::string_view text) = 0;
  virtual std::string to_text(std::size_t node, std::string_view id,
                              const ParameterValue& value) = 0;
  virtual Preset save_preset(std::size_t node) = 0;
  virtual std::vector<PresetRemark> load_preset(std::size_t node, const Preset& preset) = 0;
  // The parameters, and the state that was seen last. Asks no other process. Not while active.
  virtual Preset last_preset(std::size_t node) const = 0;

  virtual void activate(const ActivationSizes& sizes, std::vector<GraphPort> inputs,
                        std::vector<GraphPort> outputs) = 0;
  virtual void deactivate() = 0;
  // Before a job. Returns false if the plug-ins are away. A block of audio can still be given to
  // the part, which makes it dry. A picture must not be: call skip_job.
  virtual bool get_ready() = 0;
  // Counts a picture that the plug-ins do not get while they are away. Its outcome is dry.
  virtual std::uint64_t skip_job() { return 0; }
  // The next job does not follow the last one.
  virtual void mark_discontinuity() noexcept = 0;

  virtual const std::vector<JobInput>& job_inputs() const = 0;
  virtual std::vector<ImageRegion> output_extents(const JobInfo& job) = 0;
  virtual std::vector<ImageRegion> input_regions(const JobInfo& job) = 0;
  virtual std::uint64_t latency_frames() const = 0;
  virtual std::uint64_t latency_before(std::size_t node) const = 0;

  virtual WorkerBuffer lend(std::size_t bytes) = 0;
  // Not for pages of the host, which other processes cannot map.
  virtual WorkerBuffer lend(std::shared_ptr<HostPages> pages) = 0;
  virtual WorkerDeviceBuffer lend(const ctxbroker::DeviceMemory& memory) = 0;
  // Device memory between two parts. In jobs, `name` stands for it, until `deactivate`. One part
  // makes it, and makes it anew when its process has started again.
  virtual void make_relay(const void* name, std::uint64_t bytes, int device) = 0;
  // Returns the descriptor of a relay that was made since the last call, for take_relay of the
  // other part. Otherwise, returns an empty one.
  virtual Descriptor release_relay(const void* name) = 0;
  // Replaces what it has taken under that name. If there is no process now, the next one gets it.
  virtual void take_relay(Descriptor file, const void* name, std::uint64_t bytes, int device) = 0;
  virtual std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job,
                               const WorkerJobEvents& events) = 0;
  virtual JobOutcome finish(std::uint64_t job) = 0;
  virtual bool is_done(std::uint64_t job) = 0;
  virtual JobOutcome process(const JobBuffers& buffers, const JobInfo& job,
                             const WorkerJobEvents& events) = 0;
  // Returns whether a job that failed can be done once more, in the next process. Its inputs must
  // not be lent.
  virtual bool can_repeat(const JobInfo& job, const Error& error) const = 0;
  virtual bool has_jobs() const noexcept = 0;
  // Returns whether the buffer lies in a block from `lend`.
  virtual bool is_lent(const void* buffer) const = 0;

  // Null: the plug-ins are in this process. On any thread.
  virtual std::shared_ptr<WorkerImpl> worker() const = 0;
};

// Returns whether one of these buffers lies in a block from `lend`.
template <typename Buffers>
bool is_any_lent(const GraphSegment& part, const Buffers& buffers) {
  return std::any_of(buffers.begin(), buffers.end(),
                     [&](const void* buffer) { return part.is_lent(buffer); });
}

}  // namespace ctxbroker::detail
