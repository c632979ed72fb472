// SPDX-License-Identifier: Apache-2.0
#include "worker/host_segment.hpp"

#include <algorithm>
#include <utility>

#include "context/host_pages.hpp"
#include "ctxbroker/error.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {

HostSegment::HostSegment(Broker& broker, WorkerGraphDescription description,
                         const GraphOptions& options)
    : broker_(broker), description_(std::move(description)), options_(options) {
  for (const WorkerNode& node : description_.nodes) nodes_.push_back(load_node(broker, node));
}

const PluginInstance& HostSegment::at(std::size_t node) const {
  if (node < nodes_.size()) return nodes_[node].instance;
  throw Error(ErrorKind::invalid_argument, "graph: there is no node " + std::to_string(node));
}

const Graph& HostSegment::graph() const {
  if (graph_) return *graph_;
  throw Error(ErrorKind::wrong_state, "graph: it is not active; call activate first");
}

WorkerNodeState HostSegment::node_state(std::size_t node) {
  const PluginInstance& instance = at(node);
  WorkerNodeState state{instance.lease(), instance.metrics(), instance.restart_requested()};
  state.lease.context = nullptr;
  return state;
}

void HostSegment::activate(const ActivationSizes& sizes, std::vector<GraphPort> inputs,
                           std::vector<GraphPort> outputs) {
  deactivate();
  description_.inputs = inputs;
  description_.outputs = outputs;
  try {
    GraphDescription graph =
        activate_all(nodes_, sizes, std::move(inputs), std::move(outputs), description_.edges);
    devices_.describe(broker_, description_.device, graph);
    GraphOptions options = options_;
    if (options.on_done) {
      options.on_done = [tell = options_.on_done, before = before_activation_](std::uint64_t job) {
        tell(before + job);
      };
    }
    graph_.emplace(broker_, graph, sizes, options);
  } catch (...) {
    deactivate();
    throw;
  }
}

void HostSegment::deactivate() {
  graph_.reset();
  deactivate_all(nodes_);
  relays_.clear();
  finished_ = before_activation_ = submitted_;
}

// No other process gets it. A job may still use a block that the host has given back.
WorkerBuffer HostSegment::lend(std::size_t bytes) {
  return lend(HostPages::make(bytes));
}

WorkerBuffer HostSegment::lend(std::shared_ptr<HostPages> pages) {
  if (!has_jobs()) std::erase_if(lent_, [](const auto& block) { return block->is_over.load(); });
  auto block = std::make_shared<LentBlock>(std::move(pages));
  lent_.push_back(block);
  return WorkerBuffer(std::move(block));
}

bool HostSegment::is_lent(const void* buffer) const {
  return std::any_of(lent_.begin(), lent_.end(),
                     [&](const auto& block) { return block->pages->holds(buffer); });
}

WorkerDeviceBuffer HostSegment::lend(const ctxbroker::DeviceMemory&) {
  throw Error(ErrorKind::invalid_argument,
              "graph: its plug-ins are in the host, and device memory is lent to a worker; use a "
              "Graph, whose ports can be on the device");
}

void HostSegment::make_relay(const void* name, std::uint64_t bytes, int device) {
  Relay& relay = relays_[name];
  relay.memory = ctxbroker::DeviceMemory::shareable(devices_.tenant(broker_), bytes, device);
  relay.file = Descriptor(relay.memory.export_descriptor());
}

Descriptor HostSegment::release_relay(const void* name) {
  const auto found = relays_.find(name);
  return found != relays_.end() ? std::move(found->second.file) : Descriptor();
}

// If it fails, the graph refuses jobs, because their address is 0.
void HostSegment::take_relay(Descriptor file, const void* name, std::uint64_t bytes, int device) {
  Relay& relay = relays_[name];
  relay.memory.reset();
  relay.memory =
      ctxbroker::DeviceMemory::imported(devices_.tenant(broker_), file.get(), bytes, device);
}

// Returns the job's buffers with the addresses that the names of relays stand for. A graph with
// relays has several segments, and the numbers of its buffers are checked before.
const JobBuffers& HostSegment::there(const JobBuffers& buffers) {
  if (relays_.empty()) return buffers;
  const auto address = [&](const GraphPort& port, const void* buffer) {
    if (!port.on_device) return const_cast<void*>(buffer);
    return reinterpret_cast<void*>(relays_.at(buffer).memory.address());
  };
  buffers_.inputs.clear();
  buffers_.outputs.clear();
  for (std::size_t i = 0; i < buffers.inputs.size(); ++i) {
    const std::size_t input = job_inputs().at(i).input;
    buffers_.inputs.push_back(address(description_.inputs[input], buffers.inputs[i]));
  }
  for (std::size_t i = 0; i < buffers.outputs.size(); ++i) {
    buffers_.outputs.push_back(address(description_.outputs.at(i), buffers.outputs[i]));
  }
  return buffers_;
}

std::uint64_t HostSegment::submit(const JobBuffers& buffers, const JobInfo& job,
                                  const WorkerJobEvents& events) {
  job_ = job;
  job_.discontinuity = job.discontinuity || discontinuity_;
  events_.transport = events.transport;
  events_.changes.clear();
  for (const WorkerParameterChange& one : events.changes) {
    events_.changes.push_back(
        {&at(one.node), one.parameter, one.offset, one.value, one.ramp_frames, one.from});
  }
  submitted_ = before_activation_ + graph().submit(there(buffers), job_, events_);
  discontinuity_ = false;
  return submitted_;
}

void HostSegment::check_submitted(std::uint64_t job) const {
  if (job != 0 && job <= submitted_) return;
  throw Error(ErrorKind::invalid_argument,
              "graph: job " + std::to_string(job) + " was not submitted");
}

JobOutcome HostSegment::finish(std::uint64_t job) {
  check_submitted(job);
  if (job <= before_activation_) return JobOutcome::forgotten;
  const std::uint64_t before =
      std::exchange(finished_, submitted_);  // after an error, none is left
  const JobOutcome outcome = graph().finish(job - before_activation_);
  finished_ = std::max(before, job);
  return outcome;
}

bool HostSegment::is_done(std::uint64_t job) {
  check_submitted(job);
  return job <= before_activation_ || graph().is_done(job - before_activation_);
}

}  // namespace ctxbroker::detail
