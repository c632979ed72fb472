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
#include "graph/job_flight.hpp"
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
    std::vector<std::shared_ptr<detail::HostBlock>> blocks;  // that the buffers lie in
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
  bool has_ended(const detail::JobFlight& flight) const noexcept;
  void remember(Outcome outcome);
  void follow(std::uint64_t job, CUstream stream);

  // Set-up.
  void build();
  void check_job(const JobBuffers& buffers, const JobInfo& job) const;
  bool renew_lost_nodes();

  // One job.
  void start(std::uint64_t number, const JobBuffers& buffers, JobInfo job, const JobEvents& events,
             detail::JobClock::time_point submitted);
  void take_buffers(detail::JobFlight& flight, const JobBuffers& buffers, const JobInfo& job);
  void begin(detail::JobFlight& flight, std::uint64_t number, CUstream after);
  void find_blocks(const JobBuffers& buffers,
                   std::vector<std::shared_ptr<detail::HostBlock>>& found);
  void check_blocks(const detail::JobFlight& flight) const;
  bool lies_in_registered(const detail::JobFlight& flight, Index buffer) const noexcept;
  bool can_be_direct(const detail::JobFlight& flight, Index port) const noexcept;
  void run(detail::JobFlight& flight, const JobBuffers& buffers);
  void enqueue(detail::JobFlight& flight, Index node);
  void mark_given(detail::JobFlight& flight, CUstream after);
  void upload(detail::JobFlight& flight, Index node, Index value);
  void bring_here(detail::JobFlight& flight, Index node, Index feed);
  void gather(const detail::JobFlight& flight, Index node) noexcept;
  void process(detail::JobFlight& flight, Index node);
  void bypass(detail::JobFlight& flight, Index node);
  void download(detail::JobFlight& flight, Index node);
  void copy_end(const detail::JobFlight& flight, Index node, CUdeviceptr to, CUdeviceptr from,
                std::uint64_t bytes, bool to_host);
  void mark_end(detail::JobFlight& flight, Index node) noexcept;
  void end_node(detail::JobFlight& flight, Index node);
  ctxb_buffer buffer(const detail::JobFlight& flight, Index value, Index buffer,
                     const detail::Rectangle& region) const noexcept;
  ctxb_buffer input_buffer(const detail::JobFlight& flight, Index node, Index feed) noexcept;

  // Latencies: graph_latency.cpp.
  void make_delay_lines(const std::vector<std::shared_ptr<detail::Lease>>& leases);
  void delay_input(const detail::JobFlight& flight, Index node, Index port);
  // The address of what the host gets.
  CUdeviceptr delayed_output(const detail::JobFlight& flight, Index port);
  void run_line(detail::DelayLine& line, Index node, const ctxb_buffer& from);
  void check_no_latency(Index node) const;

  // Regions of images: graph_regions.cpp.
  class Asker;
  std::vector<ImageRegion> output_extents(const JobInfo& job);
  std::vector<ImageRegion> input_regions(const JobInfo& job);
  void prepare_query(const JobInfo& job);
  void find_regions(detail::JobRegions& regions, const JobInfo& job);
  void check_returned_regions(const detail::JobRegions& regions, const JobInfo& job) const;
  bool is_image(Index value) const noexcept;
  detail::Layout layout(const detail::JobFlight& flight, Index value, Index buffer) const noexcept;
  std::uint64_t bytes_of(const detail::JobFlight& flight, Index value) const noexcept;
  detail::Layout given_part(const detail::JobFlight& flight, Index value) const noexcept;
  std::uint64_t given_row_bytes(const detail::JobFlight& flight, Index value) const noexcept;
  void give_rows(const detail::JobFlight& flight, Index value, const detail::Layout& layout,
                 void* to, const void* from) const noexcept;
  void give_dry_image(const detail::JobFlight& flight, Index port) const noexcept;
  void pass_image(detail::JobFlight& flight, Index node, Index feed, Index value);

  // The end of jobs.
  void finish_oldest();
  void finish_all();
  void wait_for_work(const detail::JobFlight& flight);
  bool wait_until_deadline(const detail::JobFlight& flight);
  void count_late(const detail::JobFlight& flight) noexcept;
  void give_outputs(detail::JobFlight& flight) const noexcept;
  void give_dry(const detail::JobFlight& flight) const noexcept;
  void retire_through(std::uint64_t job);
  void add_times(detail::JobFlight& flight) noexcept;
  std::string kernels_of(const std::vector<Index>& suspects) const;
  // The nodes that can have caused a fault, and the first and last position of the jobs that they
  // were working on. Without positions, these are not known, or only one job can be in flight.
  struct Suspects {
    std::vector<Index> nodes;
    std::optional<std::pair<std::int64_t, std::int64_t>> positions;
  };
  Suspects fault_suspects() const;
  std::optional<Error> named_fault(const Error& seen);
  void forget_jobs() noexcept;
  void settle() noexcept;
  void mark_in_flight(const std::vector<bool>& is_in_flight) noexcept;
  void give_up_hung(const detail::JobFlight* flight);
  void keep_memory_for(Index hung) noexcept;
  void wait(Index node, CUresult status, const detail::JobFlight* flight, const char* doing);
  template <typename Wait>
  void settled_on_error(Wait&& wait);

  // Strikes the node's plug-in. Returns what the host is told.
  Error breach(Index node, const char* function, const std::string& why) const;
  void check_functions();
  void check_submitted(std::uint64_t job) const;
  void check_entered(Index node, CUresult entered);
  void check_call(Index node, CUresult status, const char* call, const char* doing);
  void check_call_between(Index node, CUresult status, const char* call, const char* doing);

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
  detail::JobFlight* flight_after(std::uint64_t job) noexcept {
    detail::JobFlight* oldest = nullptr;
    for (detail::JobFlight& flight : flights) {
      if (flight.job > job && (oldest == nullptr || flight.job < oldest->job)) oldest = &flight;
    }
    return oldest;
  }
  // Null: the job is not in a slot.
  const detail::JobFlight* flight_of(std::uint64_t job) const noexcept {
    for (const detail::JobFlight& flight : flights) {
      if (job != 0 && flight.job == job) return &flight;
    }
    return nullptr;
  }
  static std::uint32_t* mark(const detail::JobFlight& flight, Index node) noexcept {
    return static_cast<std::uint32_t*>(flight.marks.get()) + node;
  }

  detail::BrokerImpl& broker;
  detail::GraphParts made_from;
  const ActivationSizes& sizes = made_from.sizes;
  const GraphOptions& options = made_from.options;
  detail::Wiring wiring;
  std::vector<Node> nodes;  // as in the wiring
  detail::DevicePorts device_ports;
  detail::BufferPlan plan;
  std::vector<detail::JobFlight> flights;
  std::vector<Outcome> outcomes;  // of the last jobs, a ring
  std::size_t next_outcome = 0;   // its place
  std::deque<Waiting> waiting;
  detail::DelayLines lines;
  detail::JobChanges changes;  // of the job that is submitted
  std::vector<JobInput> job_inputs;
  // The last answers of input_regions, the oldest first.
  struct ReturnedRegions {
    JobInfo job;
    std::vector<ImageRegion> inputs;
  };
  std::deque<ReturnedRegions> returned_regions;
  std::vector<ctxb_buffer> inputs, outputs;  // of the node that processes
  std::vector<ctxb_buffer> feeds;            // its inputs at all frames
  JobBuffers one;                            // of `process` with one input and one output
  // Numbers of jobs. All up to `started` have begun, unless they were cancelled or could not. One
  // that is finished but not retired was late, and its work goes on.
  std::uint64_t submitted = 0, started = 0, finished = 0, retired = 0;
  bool is_renewed = false;  // since the last job
  // The buffers of the next job that a worker process has registered itself: see
  // GraphAccess::set_direct. Empty: there are none.
  std::vector<bool> is_direct;
  detail::KnownHostBlocks host_blocks;
  bool is_realtime = false;
  bool built = false;  // false when the last build failed: the next job tries again
};

}  // namespace ctxbroker
