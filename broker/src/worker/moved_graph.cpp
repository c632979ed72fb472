// SPDX-License-Identifier: Apache-2.0
// Moves a graph of this process into a worker.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "plugin/access.hpp"
#include "plugin/instance.hpp"
#include "worker/grouped_graph.hpp"

namespace ctxbroker {
namespace {

using detail::GraphParts;
using detail::Instance;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, "the graph cannot move into a worker: " + why);
}

void must_be_movable(const GraphParts& graph) {
  for (const auto* ends : {&graph.description.inputs, &graph.description.outputs}) {
    for (const GraphEnd& end : *ends) {
      if (end.on_device) refuse("its end " + end.name + " is on the device");
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

WorkerGraphOptions options_for(const GraphParts& graph, WorkerGraphOptions options) {
  options.graph = graph.options;
  options.graph.on_done = nullptr;
  options.graph.jobs_waiting = 0;
  if (!options.driver) options.driver = graph.instances[0]->broker().driver().info.kind;
  return options;
}

void warn(const Instance& instance, const std::string& text) {
  instance.tenant().log(
      Severity::warning, "plugin",
      "plug-in " + instance.description().short_name + " moves to a worker: " + text);
}

Preset saved(Instance& instance) {
  Preset preset = values_of(instance);
  try {
    if (instance.has_state()) preset.state = instance.save_state();
  } catch (const Error& error) {
    warn(instance, std::string("its state is lost: ") + error.what());
  }
  return preset;
}

void restore(const Instance& instance, Preset preset, WorkerGraph& worker, std::size_t node) {
  const bool has_lost_state = instance.has_state() && !preset.state;
  std::vector<PresetRemark> remarks;
  try {
    remarks = worker.load_preset(node, preset);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::plugin_failed || !preset.state) throw;
    warn(instance, std::string("its state is lost: ") + error.what());
    preset.state.reset();
    worker.load_preset(node, preset);
  }
  for (const PresetRemark& remark : remarks) {
    if (remark.kind != PresetRemark::Kind::state || !has_lost_state) warn(instance, remark.text);
  }
}

}  // namespace

WorkerGraph WorkerGraph::from(Graph&& graph, WorkerGraphOptions options) {
  const GraphParts parts = detail::Access::of(graph);
  must_be_movable(parts);
  WorkerGraphDescription description{
      parts.description.inputs, parts.description.outputs, {}, parts.description.edges};
  for (std::size_t i = 0; i < parts.instances.size(); ++i) {
    description.nodes.push_back(described(parts.description.nodes[i].name, *parts.instances[i]));
  }
  WorkerGraph made(std::move(description), options_for(parts, std::move(options)));
  { const Graph ended = std::move(graph); }
  for (Instance* const instance : parts.instances) instance->deactivate();
  for (std::size_t i = 0; i < parts.instances.size(); ++i) {
    restore(*parts.instances[i], saved(*parts.instances[i]), made, i);
  }
  ActivationSizes sizes = parts.sizes;
  if (parts.instances[0]->description().media == Media::image) sizes.sample_rate = 0;
  made.activate(sizes);
  made.impl_->mark_discontinuity();
  return made;
}

}  // namespace ctxbroker
