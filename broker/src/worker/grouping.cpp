// SPDX-License-Identifier: Apache-2.0
#include "worker/grouping.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace ctxbroker::detail {
namespace {

// Chooses a group for each node.
class Chooser {
 public:
  Chooser(const Wiring& wiring, const std::vector<std::string>& keys)
      : wiring_(wiring), keys_(keys), group_of_(wiring.nodes.size()) {}

  std::vector<Index> choose() {
    for (const Index n : wiring_.order) {
      std::set<Index> before;
      for (const Index other : wiring_.nodes[n].waits_for) before.insert(group_of_[other]);
      const Index group = group_of_[n] = group_for(n, before);
      before.erase(group);
      for (const Index other : std::set(before)) {
        before.insert(waits_for_[other].begin(), waits_for_[other].end());
      }
      for (Index other = 0; other < waits_for_.size(); ++other) {
        if (other != group && waits_for_[other].count(group) == 0) continue;
        waits_for_[other].insert(before.begin(), before.end());
      }
    }
    return group_of_;
  }

  // The groups, each behind those that it waits for. Those wait for fewer groups than it does.
  std::vector<Index> order() const {
    std::vector<Index> order(waits_for_.size());
    std::iota(order.begin(), order.end(), Index{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](Index a, Index b) { return waits_for_[a].size() < waits_for_[b].size(); });
    return order;
  }

 private:
  // Nothing that the node reads may wait for the group, because the group cannot begin before all
  // that it reads is there.
  Index group_for(Index n, const std::set<Index>& before) {
    for (Index group = waits_for_.size(); group-- > 0;) {
      const bool fits = key_of_[group] == keys_[n] &&
                        std::none_of(before.begin(), before.end(), [&](Index other) {
                          return other != group && waits_for_[other].count(group) != 0;
                        });
      if (fits) return group;
    }
    waits_for_.emplace_back();
    key_of_.push_back(keys_[n]);
    return waits_for_.size() - 1;
  }

  const Wiring& wiring_;
  const std::vector<std::string>& keys_;
  std::vector<Index> group_of_;
  std::vector<std::set<Index>> waits_for_;  // of each group, all groups that have to end before
  std::vector<std::string> key_of_;
};

// Returns a name that no other port or node has.
std::string free_name(const WorkerGraphDescription& graph, std::string wanted) {
  std::replace(wanted.begin(), wanted.end(), '.', ':');
  const auto is_taken = [&](const auto& all) {
    return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.name == wanted; });
  };
  while (is_taken(graph.inputs) || is_taken(graph.outputs) || is_taken(graph.nodes)) wanted += '_';
  return wanted;
}

std::string port_name(const Wiring& wiring, Index node, const std::string& port) {
  return wiring.nodes[node].name + '.' + port;
}

class Describer {
 public:
  Describer(const WorkerGraphDescription& whole, const Wiring& wiring,
            const std::vector<Index>& group_of)
      : whole_(whole), wiring_(wiring), group_of_(group_of) {}

  Group describe(Index group) const {
    Group made;
    for (Index n = 0; n < group_of_.size(); ++n) {
      if (group_of_[n] != group) continue;
      made.nodes.push_back(n);
      made.graph.nodes.push_back(whole_.nodes[n]);
    }
    for (const Index n : made.nodes) add_inputs(made, n);
    for (const Index n : made.nodes) add_outputs(made, n);
    // Nobody reads what these nodes make. A graph has an output all the same.
    if (made.outputs.empty()) add_output(made, made.nodes.front(), 0);
    return made;
  }

 private:
  void add_inputs(Group& made, Index n) const {
    const WiredNode& node = wiring_.nodes[n];
    for (Index port = 0; port < node.inputs.size(); ++port) {
      if (!node.inputs[port]) continue;
      const Index index = *node.inputs[port];
      const Value& value = wiring_.values[index];
      const std::string to = port_name(wiring_, n, node.plugin->inputs[port].id);
      if (value.node && group_of_[*value.node] == group_of_[n]) {
        made.graph.edges.push_back({value.name, to});
        continue;
      }
      const auto known = std::find(made.inputs.begin(), made.inputs.end(), index);
      const auto input = static_cast<Index>(known - made.inputs.begin());
      if (known == made.inputs.end()) {
        made.inputs.push_back(index);
        made.graph.inputs.push_back({free_name(made.graph, value.name)});
      }
      made.graph.edges.push_back({made.graph.inputs[input].name, to});
    }
  }

  void add_outputs(Group& made, Index n) const {
    const WiredNode& node = wiring_.nodes[n];
    for (Index port = 0; port < node.outputs.size(); ++port) {
      const Value& value = wiring_.values[node.outputs[port]];
      const bool leaves =
          std::any_of(value.readers.begin(), value.readers.end(),
                      [&](Index reader) { return group_of_[reader] != group_of_[n]; });
      if (leaves || value.goes_to_host) add_output(made, n, port);
    }
  }

  void add_output(Group& made, Index n, Index port) const {
    const Index index = wiring_.nodes[n].outputs[port];
    const std::string& name = wiring_.values[index].name;
    made.outputs.push_back(index);
    made.graph.outputs.push_back({free_name(made.graph, name)});
    made.graph.edges.push_back({name, made.graph.outputs.back().name});
  }

  const WorkerGraphDescription& whole_;
  const Wiring& wiring_;
  const std::vector<Index>& group_of_;
};

}  // namespace

WorkerGraphDescription with_edges(WorkerGraphDescription graph,
                                  const std::vector<const PluginDescription*>& plugins) {
  if (!graph.edges.empty()) return graph;
  std::string from = graph.inputs.front().name = "in";
  graph.outputs.front().name = "out";
  for (std::size_t n = 0; n < plugins.size(); ++n) {
    const std::string name = std::to_string(n + 1) + " " + plugins[n]->short_name;
    graph.nodes[n].name = name;
    graph.edges.push_back({from, name});
    from = name;
  }
  graph.edges.push_back({from, "out"});
  return graph;
}

GraphDescription graph_of(const WorkerGraphDescription& whole) {
  GraphDescription graph{whole.inputs, whole.outputs, {}, whole.edges};
  for (const WorkerNode& node : whole.nodes) graph.nodes.push_back({node.name, nullptr});
  return graph;
}

const char* const host_key = "in host";

std::string group_key(WorkerGrouping grouping, const PluginDescription& plugin, Index node) {
  switch (grouping) {
    case WorkerGrouping::by_vendor:
      if (!plugin.vendor.empty()) return "vendor " + plugin.vendor;
      [[fallthrough]];
    case WorkerGrouping::by_plugin:
      return "plug-in " + plugin.id;
    case WorkerGrouping::each_instance:
      return "node " + std::to_string(node);
    case WorkerGrouping::in_host:
      return host_key;
    case WorkerGrouping::together:
      break;
  }
  return {};
}

std::vector<Group> group_nodes(const WorkerGraphDescription& whole, const Wiring& wiring,
                               const std::vector<std::string>& keys) {
  Chooser chooser(wiring, keys);
  const std::vector<Index> group_of = chooser.choose();
  const Describer describer(whole, wiring, group_of);
  std::vector<Group> groups;
  for (const Index group : chooser.order()) {
    groups.push_back(describer.describe(group));
    groups.back().in_host = keys[groups.back().nodes.front()] == host_key;
  }
  return groups;
}

Wiring wire_groups(const std::vector<Group>& groups, const Wiring& wiring,
                   const std::vector<FrameRanges>& frames, std::vector<PluginDescription>& ports) {
  Wiring made;
  made.media = wiring.media;
  made.job_channels = wiring.job_channels;
  std::vector<Index> new_value(wiring.values.size(), unused);
  const auto add_value = [&](Index value, Maybe node, Index port) {
    new_value[value] = made.values.size();
    made.values.push_back(wiring.values[value]);
    made.values.back().node = node;
    made.values.back().port = port;
    made.values.back().readers.clear();
  };
  for (Index v = 0; v < wiring.values.size() && !wiring.values[v].node; ++v) add_value(v, {}, v);
  ports.assign(groups.size(), {});
  for (Index g = 0; g < groups.size(); ++g) {
    WiredNode node;
    node.name = groups[g].graph.nodes.front().name;
    node.plugin = &ports[g];
    node.origin = g;
    ports[g].media = wiring.media;
    for (Index port = 0; port < groups[g].inputs.size(); ++port) {
      ports[g].inputs.emplace_back().id = groups[g].graph.inputs[port].name;
      const Index value = new_value[groups[g].inputs[port]];
      node.inputs.emplace_back(value);
      made.values[value].readers.push_back(g);
      const Maybe before = made.values[value].node;
      if (before && std::count(node.waits_for.begin(), node.waits_for.end(), *before) == 0) {
        node.waits_for.push_back(*before);
      }
    }
    for (Index port = 0; port < groups[g].outputs.size(); ++port) {
      ports[g].outputs.emplace_back().id = groups[g].graph.outputs[port].name;
      node.outputs.push_back(made.values.size());
      add_value(groups[g].outputs[port], g, port);
    }
    made.nodes.push_back(std::move(node));
    made.order.push_back(g);
  }
  for (const Index value : wiring.outputs) made.outputs.push_back(new_value[value]);
  return unroll(std::move(made), frames);
}

}  // namespace ctxbroker::detail
