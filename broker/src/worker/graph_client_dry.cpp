// SPDX-License-Identifier: Apache-2.0
// What the blocks of a graph get while its process is away: the dry signal, as late as the
// plug-ins' own would be.
#include <cstring>

#include "ctxbroker/error.hpp"
#include "worker/graph_client.hpp"

namespace ctxbroker::detail {
namespace {

bool has_format_of(const GraphPort& a, const GraphPort& b) noexcept {
  return a.channels == b.channels && a.samples == b.samples;
}

}  // namespace

bool GraphClient::has_dry_sound() const noexcept {
  return options_.dry_while_away && nodes_.front().description.media == Media::audio;
}

bool GraphClient::becomes_dry(const Error& error) const noexcept {
  return has_dry_sound() && error.kind() == ErrorKind::context_lost;
}

std::vector<std::optional<HostDelayLine>> GraphClient::make_dry_lines(std::uint64_t latency) const {
  std::vector<std::optional<HostDelayLine>> lines;
  if (!has_dry_sound()) return lines;
  std::uint64_t all_bytes = 0;
  for (std::size_t o = 0; o < description_.outputs.size(); ++o) {
    const std::uint32_t channels = description_.outputs[o].channels;
    lines.push_back(delay_by(result_bytes_[o] != 0 ? 0 : latency, sizes_.max_width,
                             channels != 0 ? channels : sizes_.max_height, all_bytes));
  }
  return lines;
}

// In memory that the worker cannot reach. Each output is the first input of its format, delayed, or
// silence.
void GraphClient::keep_dry(Flight& flight, const JobBuffers& buffers, const JobInfo& job) {
  const bool is_new = dry_begins_anew_ || job.discontinuity || job.height != dry_channels_;
  dry_begins_anew_ = false;
  dry_channels_ = job.height;
  const std::size_t inputs = buffers.inputs.size();
  flight.dry.resize(buffers.outputs.size());
  for (std::size_t o = 0; o < flight.dry.size(); ++o) {
    std::vector<std::byte>& dry = flight.dry[o];
    const std::uint64_t bytes = sizes_of_[inputs + o];
    dry.resize(bytes);
    std::optional<HostDelayLine>& line = dry_lines_[o];
    if (line && is_new) line->start_anew();
    const GraphPort& port = description_.outputs[o];
    std::size_t source = 0;
    while (source < inputs && !has_format_of(port_of(source), port)) ++source;
    if (source == inputs || result_bytes_[o] != 0) {
      std::memset(dry.data(), 0, bytes);
    } else if (line) {
      line->add(static_cast<const float*>(buffers.inputs[source]), job.width,
                port.channels != 0 ? port.channels : job.height);
      line->give(reinterpret_cast<float*>(dry.data()));
    } else {
      std::memcpy(dry.data(), buffers.inputs[source], bytes);
    }
  }
}

void GraphClient::give_dry(Flight& flight) noexcept {
  for (std::size_t o = 0; o < flight.dry.size(); ++o) {
    std::memcpy(flight.outputs[o], flight.dry[o].data(), flight.dry[o].size());
  }
  end_flight(flight);
  ++dry_jobs_;
}

// The process has them no more.
void GraphClient::give_up_jobs() noexcept {
  if (!has_dry_sound()) return lose_jobs();
  while (Flight* const flight = oldest()) {
    outcomes_[flight->job % outcomes_.size()] = JobOutcome::dry;
    done_jobs_->tell(flight->job);
    give_dry(*flight);
  }
}

void GraphClient::tell_of_lost_jobs() {
  if (oldest() == nullptr) return;
  give_up_jobs();
  if (!has_dry_sound()) stale();
}

std::uint64_t GraphClient::skip_job() {
  ++dry_jobs_;
  discontinuity_ = true;  // also if the process is there, and has no part in this job
  const std::uint64_t number = ++last_job_;
  outcomes_[number % outcomes_.size()] = JobOutcome::dry;
  done_jobs_->add(0, number);
  return number;
}

// Nothing: the process is away, or ends with the job.
std::optional<JobReply> GraphClient::start_or_dry(GraphCall type, Flight& flight,
                                                  const JobBuffers& buffers, const JobInfo& job,
                                                  const WorkerJobEvents& events) {
  try {
    if (!has_dry_sound() || is_set_up()) return start(type, flight, buffers, job, events);
  } catch (const Error& error) {
    if (!becomes_dry(error)) throw;
  }
  give_up_jobs();
  flight.lent.clear();  // it was not counted as their job
  flight.devices.clear();
  give_dry(flight);
  keep_values(events, job.width);
  return {};
}

}  // namespace ctxbroker::detail
