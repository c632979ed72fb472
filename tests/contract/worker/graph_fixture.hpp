// SPDX-License-Identifier: Apache-2.0
// The same graph in this process and in a worker.
#pragma once

#include <filesystem>
#include <list>
#include <string>
#include <vector>

#include "ctxbroker/worker_graph.hpp"
#include "worker_fixture.hpp"

namespace ctxbroker {

// A library in the build: "plugins/gain.so".
std::filesystem::path built(const std::string& name);

// A node of a library whose file has the plug-in's short name.
WorkerNode node_of(const std::string& name, const std::string& folder = "plugins/");

// The pictures of most tests.
constexpr std::uint32_t width = 32, height = 16;
JobInfo picture_job(std::int64_t position = 0);
// Their sound.
constexpr std::uint32_t block = 256, channels = 2;

class WorkerGraphTest : public WorkerTest {
 protected:
  WorkerGraphOptions graph_options(const std::vector<std::string>& environment = {});
  // One image plug-in of the test.
  static WorkerGraphDescription one(const std::string& name);
};

// The same plug-ins without a worker.
struct InProcess {
  explicit InProcess(const WorkerGraphDescription& description);
  void activate(const ActivationSizes& sizes, const GraphOptions& options = {});

  WorkerGraphDescription described;
  Broker broker;
  std::vector<PluginLibrary> libraries;
  std::vector<PluginInstance> instances;
  std::optional<Graph> graph;
};

// What this process maps of the blocks that it lends to workers.
std::size_t lent_bytes();

// Samples that no two places share.
std::vector<float> noise(std::size_t count, unsigned seed);

}  // namespace ctxbroker
