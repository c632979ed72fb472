// SPDX-License-Identifier: Apache-2.0
#include "graph/delay_lines.hpp"

#include <algorithm>
#include <utility>

#include "ctxbroker/graph.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t sample_bytes = sizeof(float);

// The place of a block: its first sample, and the frames from one channel to the next.
struct Rows {
  CUdeviceptr first;
  std::uint64_t pitch;
};

CUresult copy(const DriverTable& driver, Rows to, Rows from, std::uint64_t frames,
              std::uint32_t rows, CUstream stream) noexcept {
  if (frames == 0) return CUDA_SUCCESS;
  CUDA_MEMCPY2D what{};
  what.srcMemoryType = what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  what.srcDevice = from.first;
  what.srcPitch = from.pitch * sample_bytes;
  what.dstDevice = to.first;
  what.dstPitch = to.pitch * sample_bytes;
  what.WidthInBytes = frames * sample_bytes;
  what.Height = rows;
  return driver.memcpy_2d_async(&what, stream);
}

}  // namespace

// The ring has room for a whole block beside the history, so that a block can be written before the
// delayed one is read.
DelayLine::DelayLine(const std::shared_ptr<Lease>& lease, std::uint64_t delay,
                     std::uint32_t longest, std::uint32_t rows)
    : delay_(delay), capacity_(delay + longest), words_(capacity_ * rows) {
  ring_ = make_device_memory(lease, words_ * sample_bytes);
  delayed_ = make_device_memory(lease, std::uint64_t{longest} * rows * sample_bytes);
}

CUresult DelayLine::run(const DriverTable& driver, CUdeviceptr from, std::uint32_t frames,
                        std::uint32_t rows, CUstream stream) noexcept {
  CUresult status = CUDA_SUCCESS;
  if (is_new_) {
    status = driver.memset_d32_async(ring_.get(), 0, words_, stream);
    if (status != CUDA_SUCCESS) return status;
    is_new_ = false;
    head_ = 0;
  }
  const auto ring_at = [&](std::uint64_t frame) {
    return Rows{ring_.get() + frame * sample_bytes, capacity_};
  };
  const auto block_at = [&](CUdeviceptr block, std::uint64_t frame) {
    return Rows{block + frame * sample_bytes, frames};
  };
  // Each in two parts where it passes the ring's end.
  const std::uint64_t written = std::min<std::uint64_t>(frames, capacity_ - head_);
  const std::uint64_t tail = (head_ + capacity_ - delay_) % capacity_;
  const std::uint64_t read = std::min<std::uint64_t>(frames, capacity_ - tail);
  const struct {
    Rows to, from;
    std::uint64_t frames;
  } parts[] = {{ring_at(head_), block_at(from, 0), written},
               {ring_at(0), block_at(from, written), frames - written},
               {block_at(delayed_.get(), 0), ring_at(tail), read},
               {block_at(delayed_.get(), read), ring_at(0), frames - read}};
  for (const auto& part : parts) {
    status = copy(driver, part.to, part.from, part.frames, rows, stream);
    if (status != CUDA_SUCCESS) return status;
  }
  head_ = (head_ + frames) % capacity_;
  return CUDA_SUCCESS;
}

HostDelayLine::HostDelayLine(std::uint64_t delay, std::uint32_t longest, std::uint32_t rows)
    : delay_(delay), capacity_(delay + longest), ring_(capacity_ * rows) {}

std::optional<HostDelayLine> delay_by(std::uint64_t delay, std::uint32_t longest,
                                      std::uint32_t rows, std::uint64_t& all_bytes) {
  if (delay == 0) return {};
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 26;
  all_bytes += delay * rows * sizeof(float);
  if (all_bytes > most_bytes) {
    throw Error(ErrorKind::over_limit,
                "graph: the delays in the host's process take more than " +
                    std::to_string(most_bytes) +
                    " bytes, because the plug-ins report such latencies; leave one of them out");
  }
  return HostDelayLine(delay, longest, rows);
}

void HostDelayLine::start_anew() noexcept {
  std::fill(ring_.begin(), ring_.end(), 0.0F);
  head_ = 0;
}

void HostDelayLine::add(const float* block, std::uint32_t frames, std::uint32_t rows) noexcept {
  const std::uint64_t first = std::min<std::uint64_t>(frames, capacity_ - head_);
  for (std::uint32_t row = 0; row < rows; ++row, block += frames) {
    float* const ring = ring_.data() + row * capacity_;
    std::copy_n(block, first, ring + head_);
    std::copy_n(block + first, frames - first, ring);
  }
  head_ = (head_ + frames) % capacity_;
  frames_ = frames;
  rows_ = rows;
}

void HostDelayLine::give(float* block) const noexcept {
  const std::uint64_t begin = (head_ + 2 * capacity_ - frames_ - delay_) % capacity_;
  const std::uint64_t first = std::min<std::uint64_t>(frames_, capacity_ - begin);
  for (std::uint32_t row = 0; row < rows_; ++row, block += frames_) {
    const float* const ring = ring_.data() + row * capacity_;
    std::copy_n(ring + begin, first, block);
    std::copy_n(ring, frames_ - first, block + first);
  }
}

DelayLines::DelayLines(const Wiring& wiring, std::vector<std::uint64_t> latencies,
                       const std::vector<std::shared_ptr<Lease>>& leases,
                       const ActivationSizes& sizes, bool is_dry_wanted)
    : latencies_(std::move(latencies)) {
  const LatencyPlan plan = plan_latency(wiring, latencies_);
  total_ = plan.total;
  before_ = plan.before;
  const auto make = [&](Index node, Index value, std::uint64_t delay) -> MaybeLine {
    if (delay == 0) return {};
    is_empty_ = false;
    const std::uint32_t channels = wiring.values[value].format.channels;
    return DelayLine(leases[node], delay, sizes.max_width,
                     channels != 0 ? channels : sizes.max_height);
  };
  for (Index n = 0; n < wiring.nodes.size(); ++n) {
    inputs_.emplace_back();
    for (Index port = 0; port < wiring.nodes[n].inputs.size(); ++port) {
      const Maybe value = wiring.nodes[n].inputs[port];
      inputs_[n].push_back(value ? make(n, *value, plan.inputs[n][port]) : MaybeLine{});
    }
  }
  for (Index port = 0; port < wiring.outputs.size(); ++port) {
    const Index value = wiring.outputs[port];
    outputs_.push_back(make(*wiring.values[value].node, value, plan.outputs[port]));
  }
  if (!is_dry_wanted || total_ == 0) return;
  dry_.resize(wiring.values.size());
  for (Index port = 0; port < wiring.outputs.size(); ++port) {
    const Maybe source = dry_source(wiring, port);
    if (!source || dry_[*source]) continue;
    const std::uint32_t channels = wiring.values[*source].format.channels;
    dry_[*source].emplace(total_, sizes.max_width, channels != 0 ? channels : sizes.max_height);
  }
}

void DelayLines::add_dry(const std::vector<PinnedMemory>& inputs, const JobInfo& job,
                         const Wiring& wiring, bool is_new) noexcept {
  for (Index value = 0; value < dry_.size(); ++value) {
    if (!dry_[value]) continue;
    if (is_new) dry_[value]->start_anew();
    const std::uint32_t channels = wiring.values[value].format.channels;
    dry_[value]->add(static_cast<const float*>(inputs[value].get()), job.width,
                     channels != 0 ? channels : job.height);
  }
}

bool DelayLines::begin_job(const JobInfo& job) noexcept {
  const bool goes_on = ended_ && !job.discontinuity && job.height == channels_;
  channels_ = job.height;
  ended_ = false;
  if (goes_on || is_empty_) return !goes_on;
  const auto start_anew = [](MaybeLine& one) {
    if (one) one->start_anew();
  };
  for (auto& node : inputs_) std::for_each(node.begin(), node.end(), start_anew);
  std::for_each(outputs_.begin(), outputs_.end(), start_anew);
  return true;
}

}  // namespace ctxbroker::detail
