// SPDX-License-Identifier: Apache-2.0
// Moves plug-ins to other processes: a graph of this process, or one in workers.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "graph/graph_access.hpp"
#include "observe/recorder.hpp"
#include "plugin/instance.hpp"
#include "worker/grouped_graph.hpp"
#include "worker/host_segment.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker {
namespace {

using detail::GraphParts;
using detail::Instance;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, "the graph cannot move: " + why);
}

void check_movable(const GraphParts& graph) {
  for (const auto* ports : {&graph.description.inputs, &graph.description.outputs}) {
    for (const GraphPort& port : *ports) {
      if (port.on_device) refuse("its port " + port.name + " is on the device");
    }
  }
  for (std::size_t i = 0; i < graph.instances.size(); ++i) {
    const auto& all = graph.instances;
    if (std::count(all.begin(), all.end(), all[i]) == 1) continue;
    refuse("the instance of " + graph.description.nodes[i].name +
           " is in several nodes; in a worker, each node has its own");
  }
}

WorkerNode described(const std::string& name, const Instance& instance) {
  const detail::InstanceSettings& settings = instance.settings();
  WorkerNode node{name, instance.lasting_library(), instance.description().id};
  node.options.device = Placement(settings.device);
  node.options.lease = settings.lease;
  node.options.memory_budget = settings.memory_budget;
  node.options.job_graphs = settings.job_graphs;
  return node;
}

void group(WorkerGraphDescription& graph, const std::vector<WorkerGrouping>& of_nodes) {
  if (!of_nodes.empty() && of_nodes.size() != graph.nodes.size()) {
    refuse("there are " + std::to_string(of_nodes.size()) + " groupings for " +
           std::to_string(graph.nodes.size()) + " nodes; give none, or one for each node");
  }
  for (std::size_t i = 0; i < of_nodes.size(); ++i) graph.nodes[i].grouping = of_nodes[i];
}

WorkerGraphOptions options_for(const GraphParts& graph, WorkerGraphOptions options) {
  options.graph = graph.options;
  options.graph.jobs_waiting = 0;
  const detail::BrokerImpl& broker = graph.instances[0]->broker();
  if (!options.driver) options.driver = broker.driver().info.kind;
  if (options.host_name.empty()) options.host_name = broker.host_name();
  if (options.host_version.empty()) options.host_version = broker.host_version();
  return options;
}

std::string moves(const PluginDescription& plugin, const std::string& text) {
  return "plug-in " + plugin.short_name + " moves to another process: " + text;
}

void warn(const Instance& instance, const std::string& text) {
  instance.tenant().log(Severity::warning, "plugin", moves(instance.description(), text));
}

// Calls `tell` for each thing that is lost. For a missing state it passes `without_state`, or says
// nothing if that is null, because a record has said it already.
template <typename Tell>
void restore(Preset preset, const char* without_state, WorkerGraph& graph, std::size_t node,
             const Tell& tell) {
  const bool has_no_state = !preset.state;
  std::vector<PresetRemark> remarks;
  try {
    remarks = graph.load_preset(node, preset);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::plugin_failed || !preset.state) throw;
    tell(std::string("its state is lost: ") + error.what());
    preset.state.reset();
    graph.load_preset(node, preset);
  }
  for (const PresetRemark& remark : remarks) {
    const bool is_of_state = has_no_state && remark.kind == PresetRemark::Kind::state;
    if (!is_of_state) tell(remark.text);
    if (is_of_state && without_state != nullptr) tell(without_state);
  }
}

}  // namespace

WorkerGraph WorkerGraph::from(Graph&& graph, WorkerGraphOptions options,
                              const std::vector<WorkerGrouping>& of_nodes) {
  const GraphParts parts = detail::GraphAccess::parts_of(graph);
  check_movable(parts);
  WorkerGraphDescription description{
      parts.description.inputs, parts.description.outputs, {}, parts.description.edges};
  for (std::size_t i = 0; i < parts.instances.size(); ++i) {
    description.nodes.push_back(described(parts.description.nodes[i].name, *parts.instances[i]));
  }
  group(description, of_nodes);
  WorkerGraph made(std::move(description), options_for(parts, std::move(options)));
  { const Graph ended = std::move(graph); }
  for (Instance* const instance : parts.instances) instance->deactivate();
  for (std::size_t i = 0; i < parts.instances.size(); ++i) {
    Instance& instance = *parts.instances[i];
    restore(detail::saved_or_warned(instance), nullptr, made, i,
            [&](const std::string& text) { warn(instance, text); });
  }
  ActivationSizes sizes = parts.sizes;
  if (parts.instances[0]->description().media == Media::image) sizes.sample_rate = 0;
  made.activate(sizes);
  made.impl_->mark_discontinuity();
  return made;
}

WorkerGraph WorkerGraph::from(WorkerGraph&& graph, const WorkerGraphOptions& options,
                              const std::vector<WorkerGrouping>& of_nodes) {
  if (!graph.impl_) throw Error(ErrorKind::wrong_state, "the graph was moved from");
  detail::GroupedGraph& old = *graph.impl_;
  WorkerGraphDescription description = old.graph();
  group(description, of_nodes);
  WorkerGraph made(std::move(description), options);
  const bool was_active = old.active();
  try {
    old.deactivate();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::context_lost) throw;  // the states that were seen last count
  }
  const detail::Recorder recorder(options.worker.records);
  const std::string name = options.worker.name.empty() ? "graph" : options.worker.name;
  for (std::size_t i = 0; i < old.graph().nodes.size(); ++i) {
    const auto place = old.place(i);
    const auto worker = place.part.worker();  // without one, a record has said it
    const bool has_ended = worker && worker->state() != WorkerState::ready;
    const char* const without_state =
        has_ended ? "its state is lost, because its process ended before the state was saved"
                  : nullptr;
    restore(place.part.last_preset(place.node), without_state, made, i, [&](const auto& text) {
      recorder.record(Severity::warning, host_tenant, name, "worker",
                      moves(made.description(i), text));
    });
  }
  if (was_active) made.activate(old.sizes());
  made.impl_->mark_discontinuity();
  { const WorkerGraph ended = std::move(graph); }
  return made;
}

namespace detail {

Preset saved_or_warned(Instance& instance) {
  Preset preset = values_of(instance);
  try {
    if (instance.has_state()) preset.state = instance.save_state();
  } catch (const Error& error) {
    warn(instance, std::string("its state is lost: ") + error.what());
  }
  return preset;
}

}  // namespace detail

}  // namespace ctxbroker
