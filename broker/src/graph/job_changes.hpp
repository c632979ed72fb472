// SPDX-License-Identifier: Apache-2.0
// What a host changes within one block, checked and in the plug-ins' words.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "ctxbroker/job_events.hpp"
#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

class Instance;

// What the changes of a block have to be. All throw Error (invalid_argument, parameter_value).
// `frames` are the block's, and a change's instance does not count here. None allocates, unless it
// throws.
void check_change(const ParameterChange& change, const PluginDescription& plugin,
                  std::uint32_t frames);
void check_order(std::int64_t before, std::int64_t offset);
void check_events(Media media, std::size_t count, std::size_t most,
                  const std::optional<Transport>& transport);

// Of the job that is being submitted. Allocates only in the constructor.
class JobChanges {
 public:
  // `instances` are the graph's nodes', at least one. `most`: changes of a job.
  JobChanges(std::vector<Instance*> instances, std::size_t most);

  // Takes over what the host gives. Throws Error (invalid_argument, parameter_value).
  void take(const JobEvents& events, const JobInfo& job);
  // Sets each changed parameter to its value at the first frame, or at the next block's.
  void set_first_values() noexcept;
  void set_next_values() noexcept;
  // Gives a node its events and the transport, valid until the next call.
  void give(const Instance& instance, ctxb_job& job) noexcept;

 private:
  struct Change {
    Instance* instance;
    ctxb_parameter_event event;
  };
  std::vector<Instance*> instances_;
  std::vector<Change> changes_;
  std::vector<ctxb_parameter_event> given_;
  std::size_t most_;
  std::uint32_t frames_ = 0;
  ctxb_transport transport_{};  // its size is 0: the host has none
};

}  // namespace ctxbroker::detail
