// SPDX-License-Identifier: Apache-2.0
#include "graph_fixture.hpp"

#include <fstream>

namespace ctxbroker {

std::filesystem::path built(const std::string& name) {
  const auto bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return bin.parent_path() / name;
}

WorkerNode node_of(const std::string& name, const std::string& folder) {
  return {name, built(folder + name + ".so")};
}

JobInfo picture_job(std::int64_t position) {
  JobInfo job;
  job.width = width;
  job.height = height;
  job.position = position;
  return job;
}

WorkerGraphOptions WorkerGraphTest::graph_options(const std::vector<std::string>& environment) {
  WorkerGraphOptions made;
  made.worker = options("graph", environment);
  made.worker.module.clear();
  made.worker.call_timeout = std::chrono::seconds(20);
  made.worker.start_timeout = std::chrono::seconds(60);
  return made;
}

WorkerGraphDescription WorkerGraphTest::one(const std::string& name) {
  return {{{"in"}}, {{"out"}}, {node_of(name, "test_plugins/")}};
}

InProcess::InProcess(const WorkerGraphDescription& description)
    : described(description), broker(Broker::open()) {
  for (const WorkerNode& node : described.nodes) {
    libraries.push_back(broker.load(node.library));
    instances.push_back(broker.create(libraries.back(),
                                      node.plugin.empty() ? node.name : node.plugin, node.options));
  }
}

void InProcess::activate(const ActivationSizes& sizes, const GraphOptions& options) {
  graph.reset();
  GraphDescription description{described.inputs, described.outputs, {}, described.edges};
  std::vector<PluginInstance*> row;
  for (std::size_t i = 0; i < instances.size(); ++i) {
    instances[i].deactivate();
    instances[i].activate(sizes);
    description.nodes.push_back({described.nodes[i].name, &instances[i]});
    row.push_back(&instances[i]);
  }
  if (described.edges.empty()) {
    graph.emplace(broker, row, sizes, options, described.inputs[0].samples);
  } else {
    graph.emplace(broker, description, sizes, options);
  }
}

std::size_t lent_bytes() {
  std::size_t sum = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:ctxbroker-memory") == std::string::npos) continue;
    std::size_t end = 0;
    const std::size_t begin = std::stoull(line, &end, 16);
    sum += std::stoull(line.substr(end + 1), nullptr, 16) - begin;
  }
  return sum;
}

std::vector<float> noise(std::size_t count, unsigned seed) {
  std::vector<float> samples(count);
  for (float& sample : samples) {
    seed = seed * 1664525 + 1013904223;
    sample = static_cast<float>(seed >> 8) / static_cast<float>(1 << 24);
  }
  return samples;
}

}  // namespace ctxbroker
