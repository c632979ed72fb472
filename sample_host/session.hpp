// SPDX-License-Identifier: Apache-2.0
// The chosen plug-ins, ready to process.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <utility>
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

  // As those of a graph. With --on-fault=move, the first fault of a kernel moves the plug-ins to a
  // worker process, where the unfinished jobs run again. Their inputs have to stay as they are
  // until they are finished. If the plug-ins cannot move, no job is in flight any more.
  std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job,
                       const WorkerJobEvents& events = {});
  void finish(std::uint64_t job);
  // Runs a step, which is done again from its beginning after a move.
  template <typename Step>
  void run_or_move(const Step& step) {
    try {
      return step();
    } catch (const Error& error) {
      if (!move(error)) throw;
    }
    step();
  }
  // Why the plug-ins have moved. Empty: they have not.
  const std::string& moved_because() const noexcept { return moved_because_; }

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
  // Throws Failure (usage), with the line, if a block of so many frames gets more changes than a
  // job can have.
  void check_blocks(const Automation& automation, std::uint32_t frames) const;

 private:
  struct Change {  // a checked line of the automation file
    AutomationLine line;
    std::size_t node = 0, parameter = 0;
    double value = 0;
  };

  // What a job needs to run again.
  struct Job {
    std::uint64_t number = 0, in_engine = 0;
    JobBuffers buffers;
    JobInfo info;
    WorkerJobEvents events;
    std::vector<double> values;  // when it began, of `automated_`
  };

  std::vector<const PluginDescription*> plugins() const;  // of each node
  void check_automation();
  bool move(const Error& error);
  void run_again();
  std::vector<double> automated_values() const;
  void set_automated(const std::vector<double>& values);

  const Options& options_;
  const GraphPlan& plan_;
  std::unique_ptr<Engine> engine_;
  std::vector<Change> changes_;
  std::set<std::pair<std::size_t, std::string>> automated_;  // nodes and parameters in changes_
  std::deque<Job> in_flight_;                                // with --on-fault=move
  std::uint64_t last_job_ = 0;
  std::string moved_because_;
};

}  // namespace ctxbroker::sample_host
