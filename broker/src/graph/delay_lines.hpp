// SPDX-License-Identifier: Apache-2.0
// Delays audio in device memory, so that the branches of a graph stay aligned.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "context/resources.hpp"
#include "graph/latency_plan.hpp"
#include "graph/wiring.hpp"

namespace ctxbroker::detail {

// One delay. A ring keeps the last frames of each channel from block to block. All its work is on
// one stream, so it serves any number of jobs in flight.
class DelayLine {
 public:
  // For blocks of up to `longest` frames and `rows` channels. Throws Error: out_of_memory,
  // context_lost, driver_call.
  DelayLine(const std::shared_ptr<Lease>& lease, std::uint64_t delay, std::uint32_t longest,
            std::uint32_t rows);

  // Forgets what it has: silence follows.
  void start_anew() noexcept { is_new_ = true; }
  // Enqueues one block. Call it inside the lease.
  CUresult run(const DriverTable& driver, CUdeviceptr from, std::uint32_t frames,
               std::uint32_t rows, CUstream stream) noexcept;
  // Returns where the delayed block is. It is packed as `from` was.
  CUdeviceptr delayed() const noexcept { return delayed_.get(); }

 private:
  DeviceMemory ring_, delayed_;
  std::uint64_t delay_, capacity_;  // frames
  std::uint64_t words_;             // of the ring
  std::uint64_t head_ = 0;          // where the next block goes
  bool is_new_ = true;
};

// One delay in host memory, of what the host gave.
class HostDelayLine {
 public:
  HostDelayLine(std::uint64_t delay, std::uint32_t longest, std::uint32_t rows);

  void start_anew() noexcept;
  // Takes a packed block. Each job's, in order.
  void add(const float* block, std::uint32_t frames, std::uint32_t rows) noexcept;
  // Writes the delayed block that goes with the last one, packed as that was.
  void give(float* block) const noexcept;

 private:
  std::uint64_t delay_, capacity_;       // frames
  std::vector<float> ring_;              // row after row
  std::uint64_t head_ = 0;               // where the next block goes
  std::uint32_t frames_ = 0, rows_ = 0;  // of the last block
};

// Adds its bytes to `all_bytes`; without a delay, there is none. Plug-ins of another process say
// how large the delay is, and this process pays for it: throws Error (over_limit) for too much.
std::optional<HostDelayLine> delay_by(std::uint64_t delay, std::uint32_t longest,
                                      std::uint32_t rows, std::uint64_t& all_bytes);

// Those of one graph.
class DelayLines {
 public:
  DelayLines() = default;  // none
  // `leases` are the nodes'. `is_dry_wanted`: also those for the dry signal. Throws Error.
  DelayLines(const Wiring& wiring, std::vector<std::uint64_t> latencies,
             const std::vector<std::shared_ptr<Lease>>& leases, const ActivationSizes& sizes,
             bool is_dry_wanted);

  // Null where nothing is delayed.
  DelayLine* input(Index node, Index port) noexcept {
    return is_empty_ ? nullptr : line(inputs_[node][port]);
  }
  DelayLine* output(Index port) noexcept { return is_empty_ ? nullptr : line(outputs_[port]); }
  // The delay of one of the host's inputs. With it, the input comes to the dry signal as late as
  // the outputs are.
  const HostDelayLine* dry(Index value) const noexcept {
    return value < dry_.size() && dry_[value] ? &*dry_[value] : nullptr;
  }
  // Takes what the host gave to a job, when that is finished. `inputs[v]` is value v in host
  // memory. `is_new` is what begin_job returned.
  void add_dry(const std::vector<PinnedMemory>& inputs, const JobInfo& job, const Wiring& wiring,
               bool is_new) noexcept;

  std::uint64_t latency() const noexcept { return total_; }
  // The latency of one node, and of the audio that comes to it.
  std::uint64_t latency_of(Index node) const noexcept {
    return latencies_.empty() ? 0 : latencies_[node];
  }
  std::uint64_t latency_before(Index node) const noexcept {
    return before_.empty() ? 0 : before_[node];
  }

  // Around each job. After a discontinuity, another number of channels, or a job that did not reach
  // its end, all lines begin anew. Returns whether they do.
  bool begin_job(const JobInfo& job) noexcept;
  void end_job() noexcept { ended_ = true; }
  // A job that had reached its end has failed after all.
  void interrupt() noexcept { ended_ = false; }

 private:
  using MaybeLine = std::optional<DelayLine>;
  static DelayLine* line(MaybeLine& one) noexcept { return one ? &*one : nullptr; }

  std::vector<std::vector<MaybeLine>> inputs_;     // of each node
  std::vector<MaybeLine> outputs_;                 // one for each output of the host
  std::vector<std::optional<HostDelayLine>> dry_;  // of each value; empty: none is wanted
  std::vector<std::uint64_t> latencies_, before_;  // of each node
  std::uint64_t total_ = 0;
  std::uint32_t channels_ = 0;  // of the last job
  bool ended_ = false;          // the last job reached its end
  bool is_empty_ = true;
};

}  // namespace ctxbroker::detail
