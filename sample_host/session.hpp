// A broker with the chosen plug-ins in it, ready to process.
#pragma once

#include <optional>
#include <vector>

#include "catalogue.hpp"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/graph.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

// All of --plugin, in order. Throws Failure (usage).
std::vector<PluginArgument> parse_plugin_arguments(const Options& options);

// Stays where it is made: the graph refers to the broker and the instances.
class Session {
 public:
  // Opens the driver, finds the plug-ins, checks every parameter and only then creates instances.
  // Throws Failure or Error.
  Session(const Options& options, const std::vector<PluginArgument>& arguments, Media media);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Whether every plug-in takes images of halves.
  bool takes_halves() const;
  // May be called again with others; the graph is then a new one. Throws Error.
  void activate(const ActivationSizes& sizes, SampleType samples = SampleType::float32);
  // After activate.
  Graph& graph() { return *graph_; }

  Broker& broker() noexcept { return broker_; }
  const Broker& broker() const noexcept { return broker_; }
  const std::vector<PluginInstance>& instances() const noexcept { return instances_; }
  // The one that instance `index` comes from.
  const PluginLibrary& library(std::size_t index) const { return libraries_[index]; }
  std::vector<DeviceInfo> devices() const;  // that instances are on, in the graph's order

  // Sum over the graph, in frames. While active.
  std::uint64_t latency_frames() const;

 private:
  Broker broker_;  // first: it outlives everything below
  std::vector<PluginLibrary> libraries_;
  std::vector<PluginInstance> instances_;
  std::optional<Graph> graph_;
};

}  // namespace ctxbroker::sample_host
