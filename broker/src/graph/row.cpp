// SPDX-License-Identifier: Apache-2.0
#include "graph/row.hpp"

#include <algorithm>
#include <string>

#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin_instance.hpp"

namespace ctxbroker::detail {

GraphDescription in_a_row(const std::vector<PluginInstance*>& instances, SampleType samples) {
  const auto check_row = [](bool good, const char* why) {
    if (!good) throw Error(ErrorKind::invalid_argument, std::string("graph: ") + why);
  };
  check_row(!instances.empty(), "it has no node; give it at least one plug-in instance");
  GraphDescription row;
  row.inputs = {{"host input", 0, samples}};
  row.outputs = {{"host output", 0, samples}};
  std::string before = row.inputs[0].name;
  for (PluginInstance* const instance : instances) {
    check_row(instance != nullptr, "an instance is null");
    const std::string name = instance->description().short_name;
    const auto same = std::count_if(row.nodes.begin(), row.nodes.end(), [&](const GraphNode& one) {
      return one.instance->description().short_name == name;
    });
    row.nodes.push_back({same == 0 ? name : name + '_' + std::to_string(same + 1), instance});
    row.edges.push_back({before, row.nodes.back().name});
    before = row.nodes.back().name;
  }
  row.edges.push_back({before, row.outputs[0].name});
  return row;
}

}  // namespace ctxbroker::detail
