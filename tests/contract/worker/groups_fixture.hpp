// SPDX-License-Identifier: Apache-2.0
// Graphs in several workers.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "graph_fixture.hpp"

namespace ctxbroker {

class WorkerGroupsTest : public WorkerGraphTest {
 public:
  ~WorkerGroupsTest() override { std::filesystem::remove_all(folder_); }

 protected:
  WorkerGraphOptions grouped(WorkerGrouping grouping) {
    WorkerGraphOptions made = graph_options();
    made.grouping = grouping;
    return made;
  }
  // The process of each node.
  static std::vector<std::size_t> processes(const WorkerGraph& graph, std::size_t nodes) {
    std::vector<std::size_t> all;
    for (std::size_t n = 0; n < nodes; ++n) all.push_back(graph.process_of(n));
    return all;
  }
  const std::filesystem::path& folder() {
    std::filesystem::create_directory(folder_);
    return folder_;
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("ctxb_groups_" + std::to_string(getpid()));
};

inline WorkerGraphDescription row(const std::vector<std::string>& plugins) {
  WorkerGraphDescription made{{{"in"}}, {{"out"}}, {}};
  for (const std::string& plugin : plugins) {
    made.nodes.push_back(
        {plugin + std::to_string(made.nodes.size()), built("plugins/" + plugin + ".so"), plugin});
  }
  return made;
}

// Pictures of which one is read by a plug-in and by the host.
inline WorkerGraphDescription sharp_and_blurred() {
  return {{{"in"}},
          {{"out"}, {"sharp"}},
          {node_of("exposure"), node_of("blur"), node_of("merge")},
          {{"in", "exposure"},
           {"exposure", "blur"},
           {"blur", "merge.a"},
           {"exposure", "merge.b"},
           {"merge", "out"},
           {"exposure", "sharp"}}};
}

// Sound whose one branch is late, and meets the other one in a plug-in and at the outputs.
inline WorkerGraphDescription late_and_early() {
  return {{{"in"}},
          {{"late"}, {"early"}},
          {node_of("gain"), node_of("fir"), node_of("mix")},
          {{"in", "gain"},
           {"gain", "fir"},
           {"fir", "mix.in_1"},
           {"gain", "mix.in_2"},
           {"mix", "late"},
           {"gain", "early"}}};
}

}  // namespace ctxbroker
