// SPDX-License-Identifier: Apache-2.0
// The jobs of a graph in a worker.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "ctxbroker/error.hpp"
#include "worker/graph_client.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {
namespace {

// Returns the value of a parameter after the block, as plugin_events.h says.
double value_after(const WorkerParameterChange& change, std::int64_t frames) noexcept {
  const auto ramp = static_cast<std::int64_t>(change.ramp_frames);
  if (frames >= change.offset + ramp) return change.value;
  const auto passed = static_cast<double>(frames - change.offset);
  return change.from + (change.value - change.from) * (passed / static_cast<double>(ramp));
}

// Otherwise, its work can go on after its deadline.
bool is_complete(JobOutcome outcome) noexcept {
  return outcome == JobOutcome::done || outcome == JobOutcome::late;
}

}  // namespace

std::vector<ImageRegion> GraphClient::regions(const char* what, const JobInfo& job,
                                              std::size_t count) {
  check_active();
  get_ready();
  const Json answer = ask(graph_question, {{"what", what}, {"job", to_json(job)}});
  return read([&] {
    std::vector<ImageRegion> all;
    for (const Json& one : answer) all.push_back(read_region(one));
    // The host makes buffers of these sizes.
    constexpr std::uint64_t most_pixels = std::uint64_t{1} << 32;
    for (const ImageRegion& one : all) {
      if (std::uint64_t{one.width} * one.height > most_pixels) {
        throw json::DocumentError("a region is too large");
      }
    }
    if (all.size() != count) throw json::DocumentError("it is not one region for each port");
    return all;
  });
}

std::vector<ImageRegion> GraphClient::output_extents(const JobInfo& job) {
  return regions("output_extents", job, description_.outputs.size());
}

std::vector<ImageRegion> GraphClient::input_regions(const JobInfo& job) {
  regions_.clear();
  regions_of_ = {};
  regions_ = regions("input_regions", job, job_inputs_.size());
  regions_of_ = job;
  return regions_;
}

JobReply GraphClient::send_job(GraphCall type, const JobMessage& message) {
  alignas(JobReply) std::array<char, 4096> answer;
  const std::size_t got =
      worker_.impl_->call(process_, {type, message.job, &message, sizeof message}, answer.data(),
                          answer.size(), options_.worker.call_timeout);
  JobReply reply;
  if (got < sizeof reply) refuse("it answered a job with a length that cannot be right");
  std::memcpy(&reply, answer.data(), sizeof reply);
  if (reply.failed > 1) stale();
  if (reply.failed != 0) {
    const std::string text(answer.data() + sizeof reply, got - sizeof reply);
    throw read([&] { return read_error(json::parse(text, "the answer")); });
  }
  if (got != sizeof reply || reply.outcome > static_cast<std::uint32_t>(JobOutcome::cancelled)) {
    refuse("it answered a job with a length or an outcome that cannot be right");
  }
  return reply;
}

WorkerBuffer GraphClient::lend(std::size_t bytes) {
  set_up();
  return worker_.lend(bytes);
}

WorkerBuffer GraphClient::lend(std::shared_ptr<HostPages> pages) {
  set_up();
  return WorkerBuffer(worker_.impl_->lend(std::move(pages)));
}

// The worker keeps a block that the host has ended until no job in flight uses it.
void GraphClient::hold_blocks(const Flight& flight) noexcept {
  for (const auto& block : flight.lent) ++block->jobs;
  for (const auto& device : flight.devices) ++device->jobs;
}

void GraphClient::end_flight(Flight& flight) noexcept {
  flight.job = 0;
  for (const auto& block : flight.lent) {
    if (--block->jobs != 0 || !block->is_over) continue;
    if (const auto owner = block->find_owner()) owner->take_back(*block);
  }
  flight.lent.clear();
  end_devices(flight);
}

// Copies the inputs that are not lent, and sends the job. After check_job.
JobReply GraphClient::start(GraphCall type, Flight& flight, const JobBuffers& buffers,
                            const JobInfo& job, const WorkerJobEvents& events) {
  if (flight.block.bytes() < flight.bytes) {
    flight.block =
        WorkerBuffer(worker_.impl_->lend(flight.bytes, WorkerImpl::LentTo::this_process));
  }
  const std::size_t inputs = buffers.inputs.size();

  auto* const begin = static_cast<std::byte*>(flight.block.data());
  std::byte* at = begin;
  const auto put = [&](const auto& values) {
    const std::size_t size = values.size() * sizeof values[0];
    if (size != 0) std::memcpy(at, values.data(), size);
    at += size;
  };
  put(flight.places);
  put(job.extents);
  put(events.changes);
  for (std::size_t i = 0; i < inputs; ++i) {
    const BufferPlace& place = flight.places[i];
    if (place.block == 0) std::memcpy(begin + place.offset, buffers.inputs[i], place.bytes);
  }

  JobMessage message;
  message.epoch = epoch_;
  message.block = flight.block.handle();
  message.bytes = flight.bytes;
  message.width = job.width;
  message.height = job.height;
  message.position = job.position;
  message.sample_rate = job.sample_rate;
  message.deadline_ns = job.deadline_ns;
  message.region = job.region;
  message.inputs = static_cast<std::uint32_t>(inputs);
  message.outputs = static_cast<std::uint32_t>(buffers.outputs.size());
  message.extents = static_cast<std::uint32_t>(job.extents.size());
  message.changes = static_cast<std::uint32_t>(events.changes.size());
  message.discontinuity = job.discontinuity || discontinuity_ ? 1 : 0;
  if (events.transport) {
    message.has_transport = 1;
    message.transport = *events.transport;
  }
  const JobReply reply = send_job(type, message);
  discontinuity_ = false;
  keep_values(events, job.width);
  flight.in_worker = reply.job;
  return reply;
}

// Keeps the values that the worker's own instances have now.
void GraphClient::keep_values(const WorkerJobEvents& events, std::uint32_t frames) {
  for (const WorkerParameterChange& change : events.changes) {
    nodes_[change.node].values[change.parameter] = value_after(change, frames);
  }
}

void GraphClient::copy_outputs(const Flight& flight, JobOutcome outcome) const {
  if (!is_complete(outcome) && outcome != JobOutcome::dry) return;
  const auto* const begin = static_cast<const std::byte*>(flight.block.data());
  const std::size_t inputs = flight.places.size() - flight.outputs.size();
  for (std::size_t i = 0; i < flight.outputs.size(); ++i) {
    const BufferPlace& place = flight.places[inputs + i];
    if (place.block == 0) std::memcpy(flight.outputs[i], begin + place.offset, place.bytes);
  }
}

const GraphClient::Flight* GraphClient::oldest() const noexcept {
  const Flight* found = nullptr;
  for (const Flight& flight : flights_) {
    if (flight.job != 0 && (found == nullptr || flight.job < found->job)) found = &flight;
  }
  return found;
}

GraphClient::Flight& GraphClient::free_flight() {
  for (;;) {
    for (Flight& flight : flights_) {
      if (flight.job == 0) return flight;
    }
    finish_oldest();
  }
}

void GraphClient::lose_jobs() noexcept {
  done_jobs_->forget();
  for (Flight& flight : flights_) {
    if (flight.job != 0) end_flight(flight);
  }
}

// Waits for it in the worker.
JobOutcome GraphClient::end_job(const Flight& flight) {
  if (!is_set_up()) stale();
  JobMessage message;
  message.epoch = epoch_;
  message.job = flight.in_worker;
  return static_cast<JobOutcome>(send_job(graph_finish, message).outcome);
}

// The worker must not write into a block that it has no more.
GraphClient::~GraphClient() {
  done_jobs_->stop();
  try {
    if (next_.valid()) static_cast<void>(next_.get());
  } catch (...) {  // NOLINT(bugprone-empty-catch): nobody needs it any more
  }
  try {
    while (is_set_up() && oldest() != nullptr) {
      Flight& flight = *oldest();
      end_job(flight);
      end_flight(flight);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): then the worker's graph has none in flight
  }
  lose_jobs();
}

void GraphClient::finish_oldest() {
  Flight& flight = *oldest();
  JobOutcome outcome = JobOutcome::forgotten;
  try {
    outcome = end_job(flight);
  } catch (const Error& error) {
    if (becomes_dry(error)) return give_up_jobs();
    lose_jobs();
    throw;
  } catch (...) {
    lose_jobs();
    throw;
  }
  copy_outputs(flight, outcome);
  outcomes_[flight.job % outcomes_.size()] = outcome;
  if (is_complete(outcome)) done_jobs_->tell(flight.job);
  end_flight(flight);
}

std::uint64_t GraphClient::submit(const JobBuffers& buffers, const JobInfo& job,
                                  const WorkerJobEvents& events) {
  check_active();
  get_ready();
  Flight& flight = free_flight();
  check_job(flight, buffers, job, events);
  const bool is_started = start_or_dry(graph_submit, flight, buffers, job, events).has_value();
  const std::uint64_t number = ++last_job_;
  outcomes_[number % outcomes_.size()] = is_started ? JobOutcome::forgotten : JobOutcome::dry;
  if (is_started) {
    flight.job = number;
    hold_blocks(flight);
  }
  done_jobs_->add(is_started ? flight.in_worker : 0, number);
  return number;
}

void GraphClient::check_submitted(std::uint64_t job) const {
  if (job == 0 || job > last_job_) {
    throw Error(ErrorKind::invalid_argument,
                "graph: job " + std::to_string(job) + " was not submitted");
  }
}

// If the worker has ended, finish need not wait to say so.
bool GraphClient::is_done(std::uint64_t job) {
  check_submitted(job);
  const auto flight = std::find_if(flights_.begin(), flights_.end(),
                                   [&](const Flight& one) { return one.job == job; });
  if (flight == flights_.end() || !is_set_up()) return true;
  JobMessage message;
  message.epoch = epoch_;
  message.job = flight->in_worker;
  try {
    return send_job(graph_is_done, message).outcome != 0;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::context_lost) throw;
    return true;
  }
}

JobOutcome GraphClient::finish(std::uint64_t job) {
  check_submitted(job);
  for (Flight* flight = oldest(); flight != nullptr && flight->job <= job; flight = oldest())
    finish_oldest();
  return last_job_ - job < outcomes_.size() ? outcomes_[job % outcomes_.size()]
                                            : JobOutcome::forgotten;
}

bool GraphClient::is_lent(const void* buffer) const {
  return find_block(buffer) != nullptr;
}

bool GraphClient::can_repeat(const JobInfo& job, const Error& error) const {
  const bool is_part = job.region.width != 0 || !job.extents.empty();
  if (!options_.retry || is_part || error.kind() != ErrorKind::context_lost) return false;
  const auto end = worker_.last_exit();
  const WorkerState state = worker_.state();  // ready: a process that knows of no graph
  const bool may_go_on = state == WorkerState::missing || state == WorkerState::ready;
  return may_go_on && end && end->cause != WorkerExitCause::by_host;
}

// The dead process can have damaged shared memory only. Copied inputs are copied again. A lent
// input may be damaged, so such a job is not repeated.
JobOutcome GraphClient::process(const JobBuffers& buffers, const JobInfo& job,
                                const WorkerJobEvents& events) {
  if (has_jobs()) return finish(submit(buffers, job, events));
  try {
    return process_once(buffers, job, events);
  } catch (const Error& error) {
    const bool has_lent = is_any_lent(*this, buffers.inputs) || any_on_device(description_.inputs);
    if (has_lent || !can_repeat(job, error)) throw;
  }
  return process_once(buffers, job, events);
}

// One message.
JobOutcome GraphClient::process_once(const JobBuffers& buffers, const JobInfo& job,
                                     const WorkerJobEvents& events) {
  check_active();
  get_ready();
  Flight& flight = flights_.front();
  check_job(flight, buffers, job, events);
  const auto reply = start_or_dry(graph_process, flight, buffers, job, events);
  const auto outcome = reply ? static_cast<JobOutcome>(reply->outcome) : JobOutcome::dry;
  const std::uint64_t number = ++last_job_;
  outcomes_[number % outcomes_.size()] = outcome;
  if (reply) {
    copy_outputs(flight, outcome);
    flight.lent.clear();
    flight.devices.clear();
  }
  const bool goes_on = reply && !is_complete(outcome);
  done_jobs_->add(goes_on ? reply->job : 0, number);
  return outcome;
}

const std::vector<JobInput>& GraphClient::job_inputs() const {
  check_active();
  return job_inputs_;
}

std::uint64_t GraphClient::latency_frames() const {
  check_active();
  return latency_;
}

std::uint64_t GraphClient::latency_before(std::size_t node) const {
  check_active();
  static_cast<void>(at(node));
  return latency_before_[node];
}

}  // namespace ctxbroker::detail
