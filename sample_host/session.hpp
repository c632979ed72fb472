// SPDX-License-Identifier: Apache-2.0
// The chosen plug-ins, ready to process.
#pragma once

#include <memory>
#include <vector>

#include "automation.hpp"
#include "engine.hpp"
#include "graph_plan.hpp"
#include "options.hpp"

namespace ctxbroker::sample_host {

// Stays where it is made: it is used by reference.
class Session {
 public:
  // Opens the driver, finds the plug-ins, checks their names and those of their parameters, and
  // only then creates instances. With --isolate, a worker process does that. Both are borrowed and
  // must outlive the session. Throws Failure or Error.
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

  const GraphPlan& plan() const noexcept { return plan_; }
  // Its jobs run after activate.
  Engine& engine() const noexcept { return *engine_; }
  const PluginDescription& description(std::size_t node) const {
    return engine_->description(node);
  }
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

  std::vector<const PluginDescription*> plugins() const;  // of each node
  void check_automation();

  const GraphPlan& plan_;
  std::unique_ptr<Engine> engine_;
  std::vector<Change> changes_;
};

}  // namespace ctxbroker::sample_host
