// SPDX-License-Identifier: Apache-2.0
// What stands behind ctxbroker::Graph.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/graph.hpp"
#include "graph/delay_lines.hpp"
#include "graph/graph_access.hpp"
#include "graph/job_changes.hpp"
#include "graph/job_slot.hpp"
#include "graph/wiring.hpp"
#include "plugin/access.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/instance.hpp"

namespace ctxbroker {

struct Graph::Impl {
  using Index = detail::Index;

  // A node of the wiring, with what belongs to its instance's activation.
  struct Node {
    detail::Instance* instance = nullptr;
    std::shared_ptr<detail::Lease> lease;
    std::uint64_t times_activated = 0;  // by the host: one more needs another graph
    std::uint64_t activation = 0;       // its serial, which a renewal changes
    CUstream stream = nullptr;          // the activation's
    // An instance may be in several nodes. Each has staging of its own for its uploads.
    std::size_t appearance = 0, appearances = 0;
    detail::FrameRanges frames;  // for which the graph was made
  };

  struct Outcome {
    std::uint64_t job = 0;
    JobOutcome outcome = JobOutcome::done;
    std::exception_ptr error{};  // why it could not begin
  };

  // A job that has not begun.
  struct Waiting {
    std::uint64_t job = 0;
    JobBuffers buffers;
    JobInfo info;
    JobEvents events;
    detail::JobClock::time_point submitted;
  };

  Impl(detail::BrokerImpl& owner, const GraphDescription& description,
       const ActivationSizes& limits, GraphOptions wanted);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Jobs that wait, and all that the host asks about a job's state: graph_queue.cpp.
  std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job, const JobEvents& events);
  JobOutcome finish(std::uint64_t job);
  bool is_done(std::uint64_t job);
  bool cancel(std::uint64_t job);
  void start_next();
  void start_those_that_can();
  bool has_room() const noexcept;
  bool has_ended(const detail::JobSlot& slot) const noexcept;
  void remember(Outcome outcome);
  void follow(std::uint64_t job, CUstream stream);

  // Set-up.
  void build();
  void check_job(const JobBuffers& buffers, const JobInfo& job) const;
  bool renew_lost_nodes();

  // One job.
  void start(std::uint64_t number, const JobBuffers& buffers, JobInfo job, const JobEvents& events,
             detail::JobClock::time_point submitted);
  void begin(detail::JobSlot& slot, std::uint64_t number, const JobBuffers& buffers,
             const JobInfo& job);
  bool can_be_direct(const detail::JobSlot& slot, Index end) const noexcept;
  void run(detail::JobSlot& slot, const JobBuffers& buffers);
  void enqueue(detail::JobSlot& slot, Index node);
  void mark_given(detail::JobSlot& slot, CUstream after);
  void upload(detail::JobSlot& slot, Index node, Index value);
  void bring_here(detail::JobSlot& slot, Index node, Index feed);
  void gather(const detail::JobSlot& slot, Index node) noexcept;
  void process(detail::JobSlot& slot, Index node);
  void bypass(detail::JobSlot& slot, Index node);
  void download(detail::JobSlot& slot, Index node);
  void copy_end(const detail::JobSlot& slot, Index node, CUdeviceptr to, CUdeviceptr from,
                std::uint64_t bytes, bool to_host);
  void mark_end(detail::JobSlot& slot, Index node) noexcept;
  void end_node(detail::JobSlot& slot, Index node);
  ctxb_buffer buffer(const detail::JobSlot& slot, Index value, Index buffer,
                     const detail::Rectangle& region) const noexcept;
  ctxb_buffer input_buffer(const detail::JobSlot& slot, Index node, Index feed) noexcept;

  // Latencies: graph_latency.cpp.
  void make_delay_lines(const std::vector<std::shared_ptr<detail::Lease>>& leases);
  void delay_input(const detail::JobSlot& slot, Index node, Index port);
  // The address of what the host gets.
  CUdeviceptr delayed_output(const detail::JobSlot& slot, Index end);
  void run_line(detail::DelayLine& line, Index node, const ctxb_buffer& from);
  void must_not_be_late(Index node) const;

  // Regions of images: graph_regions.cpp.
  class Asker;
  std::vector<ImageRegion> output_extents(const JobInfo& job);
  std::vector<ImageRegion> input_regions(const JobInfo& job);
  void must_be_ready(const JobInfo& job);
  void find_regions(detail::JobRegions& regions, const JobInfo& job);
  void must_be_as_told(const detail::JobRegions& regions, const JobInfo& job) const;
  bool is_image(Index value) const noexcept;
  detail::Layout layout(const detail::JobSlot& slot, Index value, Index buffer) const noexcept;
  std::uint64_t bytes_of(const detail::JobSlot& slot, Index value) const noexcept;
  detail::Layout given_part(const detail::JobSlot& slot, Index value) const noexcept;
  std::uint64_t given_row_bytes(const detail::JobSlot& slot, Index value) const noexcept;
  void give_rows(const detail::JobSlot& slot, Index value, const detail::Layout& layout, void* to,
                 const void* from) const noexcept;
  void give_dry_image(const detail::JobSlot& slot, Index end) const noexcept;
  void pass_image(detail::JobSlot& slot, Index node, Index feed, Index value);

  // The end of jobs.
  void finish_oldest();
  void finish_all();
  void wait_for_work(const detail::JobSlot& slot);
  bool wait_until_deadline(const detail::JobSlot& slot);
  void count_late(const detail::JobSlot& slot) noexcept;
  void give_outputs(detail::JobSlot& slot) const noexcept;
  void give_dry(const detail::JobSlot& slot) const noexcept;
  void retire_through(std::uint64_t job);
  void add_times(detail::JobSlot& slot) noexcept;
  std::string kernels_of(const std::vector<Index>& suspects) const;
  std::vector<Index> fault_suspects() const;
  std::optional<Error> named_fault(const Error& seen);
  void forget_jobs() noexcept;
  void settle() noexcept;
  void mark_in_flight(const std::vector<bool>& is_in_flight) noexcept;
  void give_up_hung(const detail::JobSlot* slot);
  void keep_memory_for(Index hung) noexcept;
  void wait(Index node, CUresult status, const detail::JobSlot* slot, const char* doing);
  template <typename Wait>
  void settled_on_error(Wait&& wait);

  // Strikes the node's plug-in. Returns what the host is told.
  Error breach(Index node, const char* function, const std::string& why) const;
  void must_be_submitted(std::uint64_t job) const;
  void must_be_inside(Index node, CUresult entered);
  void must(Index node, CUresult status, const char* call, const char* doing);
  void must_between(Index node, CUresult status, const char* call, const char* doing);

  detail::GuardedCall blame(Index node) const noexcept {
    detail::Instance& instance = *nodes[node].instance;
    return {.tenant = &instance.tenant(),
            .strikes = &instance.counters().strikes,
            .function = "process",
            .plugin = instance.description().short_name.c_str(),
            .plugin_id = instance.lasting_id(),
            .library = instance.lasting_library()};
  }
  // The slot with the oldest job behind this one. Null: there is none.
  detail::JobSlot* slot_after(std::uint64_t job) noexcept {
    detail::JobSlot* oldest = nullptr;
    for (detail::JobSlot& slot : slots) {
      if (slot.job > job && (oldest == nullptr || slot.job < oldest->job)) oldest = &slot;
    }
    return oldest;
  }
  // Null: the job is not in a slot.
  const detail::JobSlot* slot_of(std::uint64_t job) const noexcept {
    for (const detail::JobSlot& slot : slots) {
      if (job != 0 && slot.job == job) return &slot;
    }
    return nullptr;
  }
  static std::uint32_t* mark(const detail::JobSlot& slot, Index node) noexcept {
    return static_cast<std::uint32_t*>(slot.marks.get()) + node;
  }

  detail::BrokerImpl& broker;
  detail::GraphParts made_from;
  const ActivationSizes& sizes = made_from.sizes;
  const GraphOptions& options = made_from.options;
  detail::Wiring wiring;
  std::vector<Node> nodes;  // as in the wiring
  detail::DeviceEnds ends;
  detail::BufferPlan plan;
  std::vector<detail::JobSlot> slots;
  std::vector<Outcome> outcomes;  // of the last jobs, a ring
  std::size_t next_outcome = 0;   // its place
  std::deque<Waiting> waiting;
  detail::DelayLines lines;
  detail::JobChanges changes;  // of the job that is submitted
  std::vector<JobInput> job_inputs;
  // The last answers of input_regions, the oldest first.
  struct ToldRegions {
    JobInfo job;
    std::vector<ImageRegion> inputs;
  };
  std::deque<ToldRegions> told_regions;
  std::vector<ctxb_buffer> inputs, outputs;  // of the node that processes
  std::vector<ctxb_buffer> feeds;            // its inputs at all frames
  JobBuffers one;                            // of `process` with one input and one output
  // Numbers of jobs. All up to `started` have begun, unless they were cancelled or could not. One
  // that is finished but not retired was late, and its work goes on.
  std::uint64_t submitted = 0, started = 0, finished = 0, retired = 0;
  bool is_renewed = false;  // since the last job
  // JobSlot::is_direct of the next job. Empty: nothing is. Only with LateJobs::deliver and without
  // waiting jobs. Work that hangs could write there later, so this is for a process that ends then.
  std::vector<bool> is_direct;
  bool built = false;  // false when the last build failed: the next job tries again
};

}  // namespace ctxbroker
