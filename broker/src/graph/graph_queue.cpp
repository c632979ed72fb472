// SPDX-License-Identifier: Apache-2.0
// Graph: the jobs that wait until they can be in flight, and what the host asks about its jobs.
//
// No thread of the broker's starts jobs, because plug-ins are called on the host's threads only.
// Each call of the host's looks whether there is room.
#include <algorithm>
#include <string>
#include <utility>

#include "context/open_captures.hpp"
#include "ctxbroker/error.hpp"
#include "graph/graph_impl.hpp"

namespace ctxbroker {

using namespace detail;  // the rooms behind this header

// All of its work: finishing and retiring it does not wait.
bool Graph::Impl::has_ended(const JobFlight& flight) const noexcept {
  if (flight.is_told()) return true;
  for (Index n = 0; n < nodes.size(); ++n) {
    if (!flight.ended[n]) continue;
    const DriverTable& driver = nodes[n].lease->table();
    const BesideCaptures beside(driver);
    if (driver.event_query(flight.ended[n].get()) == CUDA_ERROR_NOT_READY) return false;
  }
  return true;
}

// A job can begin without waiting for another one. Work ends in the order of the jobs.
bool Graph::Impl::has_room() const noexcept {
  return std::any_of(flights.begin(), flights.end(),
                     [&](const JobFlight& flight) { return flight.job == 0 || has_ended(flight); });
}

void Graph::Impl::remember(Outcome outcome) {
  outcomes[next_outcome] = std::move(outcome);
  next_outcome = (next_outcome + 1) % outcomes.size();
}

// Starts the next job that waits. The host receives an error when it finishes the job.
void Graph::Impl::start_next() {
  const Waiting next = std::move(waiting.front());
  waiting.pop_front();
  try {
    start(next.job, next.buffers, next.info, next.events, next.submitted);
  } catch (...) {
    remember({next.job, JobOutcome::forgotten, std::current_exception()});
    if (options.on_done) options.on_done(next.job);
  }
}

void Graph::Impl::start_those_that_can() {
  while (!waiting.empty() && has_room()) start_next();
}

std::uint64_t Graph::Impl::submit(const JobBuffers& buffers, const JobInfo& job,
                                  const JobEvents& events) {
  const JobClock::time_point now = job.deadline_ns != 0 ? JobClock::now() : JobClock::time_point{};
  start_those_that_can();
  if (options.jobs_waiting == 0 || (waiting.empty() && has_room())) {
    start(submitted + 1, buffers, job, events, now);
    return ++submitted;
  }
  check_job(buffers, job);
  changes.take(events, job);  // only to check them
  while (waiting.size() == options.jobs_waiting) {
    if (flight_after(finished) != nullptr) finish_oldest();
    start_next();
  }
  std::vector<std::shared_ptr<HostBlock>> blocks(buffers.inputs.size() + buffers.outputs.size());
  find_blocks(buffers, blocks);
  waiting.push_back({++submitted, buffers, job, events, now, std::move(blocks)});
  start_those_that_can();
  return submitted;
}

JobOutcome Graph::Impl::finish(std::uint64_t job) {
  check_submitted(job);
  const auto is_it = [job](const auto& one) { return one.job == job; };
  for (;;) {
    const bool waits = std::any_of(waiting.begin(), waiting.end(), is_it);
    if (!waits && (job <= finished || flight_of(job) == nullptr)) break;
    if (flight_after(finished) != nullptr) {
      finish_oldest();
    } else {
      start_next();  // when late work has ended, which goes on in all flights
    }
    start_those_that_can();
  }
  const auto told = std::find_if(outcomes.begin(), outcomes.end(), is_it);
  if (told == outcomes.end()) return JobOutcome::forgotten;
  if (told->error != nullptr) std::rethrow_exception(std::exchange(told->error, nullptr));
  return told->outcome;
}

bool Graph::Impl::is_done(std::uint64_t job) {
  check_submitted(job);
  start_those_that_can();
  const auto is_it = [job](const Waiting& one) { return one.job == job; };
  if (std::any_of(waiting.begin(), waiting.end(), is_it)) return false;
  const JobFlight* const flight = flight_of(job);
  return job <= finished || flight == nullptr || has_ended(*flight);
}

bool Graph::Impl::cancel(std::uint64_t job) {
  check_submitted(job);
  const auto found = std::find_if(waiting.begin(), waiting.end(),
                                  [job](const Waiting& one) { return one.job == job; });
  if (found == waiting.end()) return false;
  waiting.erase(found);
  remember({job, JobOutcome::cancelled, {}});
  if (options.on_done) options.on_done(job);
  return true;
}

void Graph::Impl::check_submitted(std::uint64_t job) const {
  if (job == 0 || job > submitted) {
    throw Error(ErrorKind::invalid_argument,
                "graph: job " + std::to_string(job) + " was not submitted");
  }
}

}  // namespace ctxbroker
