// SPDX-License-Identifier: Apache-2.0
// A broker with the chosen plug-ins in it, ready to process.
#pragma once

#include <optional>
#include <vector>

#include "automation.hpp"
#include "catalogue.hpp"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/graph.hpp"
#include "graph_plan.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

// What the host gives and gets.
struct EndFormats {
  std::vector<std::uint32_t> input_channels, output_channels;  // of each end; 0: as usual
  SampleType samples = SampleType::float32;
};

// Stays where it is made: the graph refers to the broker and the instances.
class Session {
 public:
  // Opens the driver, finds the plug-ins, checks their names and those of their parameters, and
  // only then creates instances. `plan` is borrowed and must outlive the session. Throws Failure or
  // Error.
  Session(const Options& options, const GraphPlan& plan, Media media);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Writes the preset that the options ask for. Before any job. Throws Failure, Error.
  void save_preset(const Options& options) const;
  // Of what one of the graph's outputs gets; 0: it gets no results.
  std::uint32_t result_bytes(std::size_t output) const;
  // A plug-in has asked to be activated again.
  bool wants_restart() const;
  // Warns of those that have, where that cannot be done.
  void tell_of_restarts() const;

  // Whether every plug-in takes images of halves.
  bool takes_halves() const;
  // May be called again with others; the graph is then a new one. No jobs are in flight. Throws
  // Error; Failure (usage) for a graph file whose edges and plug-ins do not fit each other.
  void activate(const ActivationSizes& sizes, const EndFormats& formats);
  // After activate.
  Graph& graph() { return *graph_; }

  const GraphPlan& plan() const noexcept { return plan_; }
  Broker& broker() noexcept { return broker_; }
  const Broker& broker() const noexcept { return broker_; }
  const std::vector<PluginInstance>& instances() const noexcept { return instances_; }
  // The one that instance `index` comes from.
  const PluginLibrary& library(std::size_t index) const { return libraries_[index]; }
  std::vector<DeviceInfo> devices() const;  // that instances are on, in the graph's order

  // What the automation file says, for this activation. `rate` is how many frames a unit of its
  // times has: Hz for recordings, 1 for images. Changes of recordings are as late as the sound is
  // when it comes to the node, so that they stay where they are in the sound.
  std::vector<AutomationPoint> automation(double rate);

 private:
  struct Change {  // a checked line of the automation file
    AutomationLine line;
    std::size_t node = 0, parameter = 0;
    double value = 0;
  };

  void check_automation(const std::vector<Choice>& choices);

  const GraphPlan& plan_;
  std::vector<Change> changes_;
  GraphOptions graph_options_;
  Broker broker_;  // it outlives everything below
  std::vector<PluginLibrary> libraries_;
  std::vector<PluginInstance> instances_;
  std::optional<Graph> graph_;
};

}  // namespace ctxbroker::sample_host
