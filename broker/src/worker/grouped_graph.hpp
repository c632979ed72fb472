// SPDX-License-Identifier: Apache-2.0
// The graph behind a WorkerGraph: its nodes are in one process, or in several as the host groups
// them. With one process, each call goes straight to it. With several, a job is passed from process
// to process here, on the device where that is possible (relays) and through host memory otherwise.
// The host's own process is one of them if plug-ins are in it. With dry_while_away, a graph of
// pictures takes this second path even with one process, because the pictures of a process that is
// away are made here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/worker_graph.hpp"
#include "graph/delay_lines.hpp"
#include "graph/rectangle.hpp"
#include "graph/wiring.hpp"
#include "observe/recorder.hpp"
#include "process/maker.hpp"
#include "worker/graph_segment.hpp"
#include "worker/grouping.hpp"
#include "worker/packet.hpp"

namespace ctxbroker::detail {

// Copies a part of a picture to memory without gaps. `from` holds the part `there`, and where that
// has no pixels, the copy has zeros.
void cut_out(void* to, const Rectangle& wanted, const void* from, const Rectangle& there,
             const Format& format);

class GroupedGraph {
 public:
  GroupedGraph(WorkerGraphDescription description, const WorkerGraphOptions& options);
  // Destroys a segment that reads a relay before the one that made it.
  ~GroupedGraph() {
    while (!segments_.empty()) segments_.pop_back();
  }
  GroupedGraph(const GroupedGraph&) = delete;
  GroupedGraph& operator=(const GroupedGraph&) = delete;
  // False: a forked process has this copy, and leaves all of it alone.
  bool is_in_its_process() const noexcept { return maker_.is_this_process(); }

  // The place of a node.
  struct Place {
    GraphSegment& part;
    std::size_t node = 0;     // its number there
    std::size_t process = 0;  // of the part
  };
  Place place(std::size_t node) const;
  const WorkerGraphDescription& graph() const noexcept { return description_; }
  const std::vector<std::unique_ptr<GraphSegment>>& parts() const noexcept { return segments_; }

  void activate(const ActivationSizes& sizes, std::vector<GraphPort> inputs,
                std::vector<GraphPort> outputs);
  void deactivate();
  bool active() const noexcept { return active_; }
  const ActivationSizes& sizes() const noexcept { return sizes_; }
  void mark_discontinuity() noexcept {
    for (const auto& part : segments_) part->mark_discontinuity();
  }
  void poll();

  const std::vector<JobInput>& job_inputs() const;
  std::vector<ImageRegion> output_extents(const JobInfo& job);
  std::vector<ImageRegion> input_regions(const JobInfo& job);
  std::uint64_t latency_frames();
  std::uint64_t latency_before(std::size_t node);

  WorkerBuffer lend(std::size_t bytes) { return segments_.front()->lend(bytes); }
  WorkerBuffer lend(const HostMemory& memory);
  WorkerDeviceBuffer lend(const ctxbroker::DeviceMemory& memory);
  std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job,
                       const WorkerJobEvents& events);
  JobOutcome finish(std::uint64_t job);
  bool is_done(std::uint64_t job) { return segments_.back()->is_done(job); }
  JobOutcome process(const float* input, float* output, const JobInfo& job,
                     const WorkerJobEvents& events);
  JobOutcome process(const JobBuffers& buffers, const JobInfo& job, const WorkerJobEvents& events);

 private:
  const Maker maker_;
  // One process, once for each frame that others need of it: a node of wiring_.
  struct Step {
    std::vector<Index> feeds;      // of each input that the process asks for: the feed of the node
    std::vector<Rectangle> needs;  // likewise: which part of a picture
    std::vector<std::vector<std::byte>> parts;        // likewise: what is cut out, or delayed
    std::vector<std::optional<HostDelayLine>> lines;  // likewise, for audio
    JobInfo job;
    JobBuffers buffers;
    WorkerJobEvents events;
  };
  // One of wiring_.values.
  struct Samples {
    std::vector<std::byte> storage;  // for what a process makes, unless it is a relay
    Mapping relay;                   // the name of one
    std::size_t relay_to = 0;        // the process that reads it
    void* room() noexcept {
      return storage.empty() ? static_cast<void*>(relay.get()) : storage.data();
    }
    const void* data = nullptr;    // what there is for this job
    Rectangle region{};            // of a picture: the part that there is
    Rectangle extent{}, wanted{};  // the whole, and what others need of it
  };

  bool is_whole() const noexcept { return segments_.size() == 1 && !has_dry_pictures_; }
  GraphSegment& ask_segment(const WiredNode& node) noexcept {
    asked_last_ = node.origin;
    return *segments_[asked_last_];
  }
  std::vector<std::optional<PluginDescription>> group(const WorkerGraphOptions& options);
  std::vector<const PluginDescription*> plugins() const;
  void allow_dry_pictures();
  void start(const WorkerGraphOptions& options);
  void check_active() const;
  void check_in_host_memory(const std::vector<GraphPort>& ports) const;
  template <typename Work>
  void for_all(const Work& work);
  std::vector<bool> find_relays(const Wiring& whole) const;
  std::vector<bool> read_once(std::vector<bool> relays) const;
  Index relay_of(const Value& value) const;
  void activate_segments(const Wiring& whole, const std::vector<bool>& relays);
  void make_relays(const std::vector<bool>& relays);
  void pass_relays(Index from, Index step);
  void make_steps(const Wiring& whole);
  void keep_aligned();

  // Jobs of several processes.
  void get_ready();
  bool is_image(Index value) const noexcept;
  void lose_step() noexcept;
  void check(const JobBuffers& buffers, const JobInfo& job, const WorkerJobEvents& events) const;
  void prepare(const JobInfo& job, const WorkerJobEvents& events);
  void check_image_query(const JobInfo& job) const;
  void find_extents(const JobInfo& job);
  void find_regions(const JobInfo& job);
  void check_returned_regions(const JobInfo& job);
  bool fits(const Rectangle& picture) const noexcept;
  void check_same_regions(Index n);
  void start_lines_anew() noexcept;
  const void* input_of(Index n, std::size_t input);
  void* output_of(Index value, bool is_last, const JobBuffers& host, const JobInfo& job);
  void give_outputs(const JobBuffers& host, const JobInfo& job);
  template <typename Last>
  auto run(const JobBuffers& buffers, const JobInfo& job, const WorkerJobEvents& events,
           const Last& last);

  // Pictures without a process that is away.
  Maybe source_of(const WiredNode& node, Index output) const noexcept;
  void find_dry_extents(const WiredNode& node, const JobInfo& job) noexcept;
  void find_dry_regions(const WiredNode& node) noexcept;
  void make_dry(const WiredNode& node);
  template <typename Work>
  auto without_ended(const JobBuffers& buffers, const JobInfo& job, const Work& work);

  WorkerGraphDescription description_;
  WorkerGraphDescription wired_;  // the same with edges, if there are several groups
  std::uint32_t most_changes_;    // of a job
  const Recorder recorder_;
  const std::string name_;
  std::vector<Group> groups_;                               // in the order in which they run
  std::vector<std::unique_ptr<GraphSegment>> segments_;     // of each group
  std::vector<std::pair<std::size_t, std::size_t>> place_;  // of each node: its group, and where
  bool has_dry_pictures_ = false;                           // with dry_while_away
  bool active_ = false;
  ActivationSizes sizes_;       // of the last activation
  std::size_t asked_last_ = 0;  // a group

  // The members below are for several processes, while the graph is active.
  std::vector<PluginDescription> ports_;  // of the groups, for wiring_
  Wiring wiring_;
  std::vector<Step> steps_;
  std::vector<Samples> samples_;
  std::vector<JobInput> job_inputs_;
  std::vector<std::uint64_t> latencies_;  // of the steps, for which latency_ and the lines are
  LatencyPlan latency_;
  std::vector<std::optional<HostDelayLine>> output_lines_;
  bool is_dry_ = false;                        // a process had the dry signal for the last job
  std::vector<bool> left_out_;                 // of each part: it has no part in this picture
  bool last_reads_relay_ = false;              // the last process does
  std::uint64_t last_submitted_ = 0;           // a job of the last process
  std::vector<std::uint64_t> dry_jobs_;        // those of the last submitted ones, by their numbers
  std::optional<std::uint32_t> goes_on_with_;  // the channels of the last block, if all went well
  JobInfo regions_of_;                         // what the host was told last, and for which job
  std::vector<ImageRegion> regions_;
  std::vector<bool> left_out_there_;  // without which parts
  JobBuffers one_;                    // of a job with one input and one output
};

}  // namespace ctxbroker::detail
