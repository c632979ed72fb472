// SPDX-License-Identifier: Apache-2.0
// A flight: the buffers, staging memory and events that one job in flight needs for itself.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "context/host_blocks.hpp"
#include "context/resources.hpp"
#include "graph/node_times.hpp"
#include "graph/regions.hpp"
#include "graph/wiring.hpp"

namespace ctxbroker::detail {

class TenantImpl;

using JobClock = std::chrono::steady_clock;

// The graph's ports that lie in device memory, and the tenant whose memory it is.
struct DevicePorts {
  std::vector<bool> inputs, outputs;
  std::shared_ptr<TenantImpl> tenant;  // null: none do
  int device = 0;
  std::shared_ptr<Lease> lease;  // of that tenant, as it is now
};

// Tells the host, on a driver thread, that all of a job's work is done. Work that hangs
// may end after the graph has: then whoever comes last deletes this, and nobody is told.
class DoneCall {
 public:
  using Tell = std::function<void(std::uint64_t)>;
  struct Release {
    void operator()(DoneCall* call) const noexcept;
  };

  explicit DoneCall(const Tell& tell) : tell_(&tell) {}
  void begin(std::uint64_t job) noexcept;
  // Enqueues a call of this behind the work in a stream.
  CUresult follow(const DriverTable& driver, CUstream stream) noexcept;
  // Everything is enqueued. Without it, nobody is told.
  void end_of_submit() noexcept;
  // The job has failed: nobody is told of it any more.
  void cancel() noexcept;
  // The host has been told of this job. The call for it may not have returned yet.
  bool has_told(std::uint64_t job) const noexcept {
    return told_.load(std::memory_order_acquire) == job;
  }

 private:
  ~DoneCall() = default;
  static void CUDA_CB work_has_ended(void* call);
  void add(int calls) noexcept;
  void tell_if_done() noexcept;

  std::mutex mutex_;
  const Tell* tell_;  // null: the graph has ended
  std::uint64_t job_ = 0;
  int open_ = 0;  // calls that are enqueued
  bool is_complete_ = false;
  std::atomic<std::uint64_t> told_{0};  // the last job of which the host was told
};

struct JobFlight {
  std::uint64_t job = 0;  // its number; 0: free
  JobClock::time_point deadline = JobClock::time_point::max();
  std::size_t begun = 0;     // how many nodes, in the order of running, have been asked to process
  bool marked = true;        // the marks below could be made
  bool is_timed = false;     // the times below are taken
  bool is_given = false;     // `given` below counts
  bool begins_anew = false;  // its delays begin with silence
  JobInfo info;
  JobRegions regions;               // of images
  std::vector<const void*> inputs;  // the host's memory
  std::vector<void*> outputs;       // likewise

  std::vector<DeviceMemory> buffers;  // of the plan
  // Each input, then each output: the block of host memory that it lies in, or null, and whether
  // the host's own memory is registered and takes part in the copy itself.
  std::vector<std::shared_ptr<HostBlock>> blocks;
  std::vector<bool> is_direct;
  std::vector<PinnedMemory> uploads;    // of the graph's inputs in host memory; else empty
  std::vector<PinnedMemory> downloads;  // of its outputs, likewise
  std::vector<NodeTimes> times;         // of each node; none before the first job that is timed
  std::vector<Event> uploaded;          // of each input that several nodes read; else empty
  std::vector<Event> handed_over;       // of each node that somebody waits for; else empty
  std::vector<Event> ended;             // of each node that nobody waits for, or whose output the
                                        // host gets: also its downloads are done; else empty
  Event given;  // in the host's stream: its device memory may be used; empty: it is in none
  std::unique_ptr<DoneCall, DoneCall::Release> done_call;  // null: the host does not want it
  // For each node the number of the last job whose work it has ended, or 0 if it makes no marks. A
  // mark can still be read after a fault, when the driver answers nothing any more.
  PinnedMemory marks;
  std::vector<bool> makes_marks;  // of each node

  // The memory that an input is uploaded from, and the memory that an output is downloaded to.
  const void* source(std::size_t value) const noexcept {
    return is_direct[value] ? inputs[value] : uploads[value].get();
  }
  void* target(std::size_t port) const noexcept {
    return is_direct[inputs.size() + port] ? outputs[port] : downloads[port].get();
  }

  // Its buffers are free again, and the host's memory is not needed any more.
  void end() noexcept {
    job = 0;
    for (auto& block : blocks) block.reset();
  }
  bool has_blocks() const noexcept {
    return std::any_of(blocks.begin(), blocks.end(),
                       [](const auto& one) { return one != nullptr; });
  }

  // The host knows that it can finish the job, although the event behind that call may be missing.
  bool is_told() const noexcept { return done_call != nullptr && done_call->has_told(job); }
};

// Throws Error: out_of_memory, context_lost, driver_call.
JobFlight make_flight(const Wiring& wiring, const BufferPlan& plan,
                      const std::vector<std::shared_ptr<Lease>>& leases,
                      const DevicePorts& device_ports, const ActivationSizes& sizes,
                      const GraphOptions& options);

}  // namespace ctxbroker::detail
