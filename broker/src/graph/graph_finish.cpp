// SPDX-License-Identifier: Apache-2.0
// Graph: ends jobs, in the order in which they began.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <string>

#include "context/failed_work.hpp"
#include "context/open_captures.hpp"
#include "context/timed_wait.hpp"
#include "ctxbroker/error.hpp"
#include "graph/graph_impl.hpp"
#include "observe/running.hpp"
#include "observe/span.hpp"

namespace ctxbroker {

using namespace detail;  // the rooms behind this header

namespace {

CUevent last_event(const JobFlight& flight, std::size_t node) {
  return flight.ended[node] ? flight.ended[node].get() : flight.handed_over[node].get();
}

// Adds to a counter of an instance or its lease.
void count(std::atomic<std::uint64_t>& counter, std::uint64_t amount) noexcept {
  counter.fetch_add(amount, std::memory_order_relaxed);
}

}  // namespace

Graph::Impl::~Impl() {
  try {
    finish_all();
  } catch (...) {  // NOLINT(bugprone-empty-catch): nobody is left to tell
  }
  broker.remove_graph();
}

// `status` is what a wait for the node's work answered, of the job in `slot`.
void Graph::Impl::wait(Index node, CUresult status, const JobFlight* flight, const char* doing) {
  const Node& at = nodes[node];
  if (status == CUDA_ERROR_TIMEOUT) {
    give_up_hung(flight);
    const BesideCaptures beside(at.lease->table());
    status = at.lease->table().stream_synchronize(at.stream);  // it had ended after all
  }
  check_call(node, status, "cuEventSynchronize", doing);
}

// Evidence for blame, by node. An instance in several nodes has work in flight if one of them has.
void Graph::Impl::mark_in_flight(const std::vector<bool>& is_in_flight) noexcept {
  for (Index n = 0; n < nodes.size(); ++n) {
    if (!is_in_flight[n]) nodes[n].instance->set_in_flight(false);
  }
  for (Index n = 0; n < nodes.size(); ++n) {
    if (is_in_flight[n]) nodes[n].instance->set_in_flight(true);
  }
}

// Keeps memory of the host and of other nodes that hung work uses until that work has ended. The
// other nodes may be in other families of contexts. They may also have stores, and a store waits
// only for work of its own lease.
void Graph::Impl::keep_memory_for(Index hung) noexcept {
  const Lease& lease = *nodes[hung].lease;
  const auto tell = [&](Lease& other) {
    if (other.family() != lease.family() || other.memory_store() != nullptr ||
        other.pinned_store() != nullptr) {
      other.tenant().hung.add(lease.device_ordinal(), lease.family());
    }
  };
  for (const Node& node : nodes) tell(*node.lease);
  // Blocks of host memory are the host's.
  if (std::any_of(flights.begin(), flights.end(),
                  [](const auto& one) { return one.has_blocks(); })) {
    broker.host().hung.add(lease.device_ordinal(), lease.family());
  }
  if (device_ports.lease != nullptr) tell(*device_ports.lease);
}

// Some node's work hangs. Guilty are nodes whose work has not ended, although all ended for which
// they wait; those behind are innocent. Later jobs do not count. Without a slot, one is being
// enqueued, and everything in the streams counts. Throws Error (context_lost), unless all have
// ended just now.
void Graph::Impl::give_up_hung(const JobFlight* flight) {
  std::vector<bool> is_open(nodes.size());
  const Instance* guilty = nullptr;
  for (const Index n : wiring.order) {
    const Node& node = nodes[n];
    const DriverTable& driver = node.lease->table();
    const BesideCaptures beside(driver);
    const CUresult status = flight == nullptr ? driver.stream_query(node.stream)
                                              : driver.event_query(last_event(*flight, n));
    is_open[n] = status != CUDA_SUCCESS;
  }
  // Ended work is no evidence, unless a later job follows it.
  if (flight == nullptr || flight->job == started) mark_in_flight(is_open);
  for (const Index n : wiring.order) {
    const Node& node = nodes[n];
    if (!is_open[n]) continue;
    const std::vector<Index>& before = wiring.nodes[n].waits_for;
    const bool waits =
        std::any_of(before.begin(), before.end(), [&](Index other) { return is_open[other]; });
    if (!waits) {
      if (guilty == nullptr) guilty = node.instance;
      node.instance->hang(*node.lease, node.stream);
    } else if (node.lease->state() != LeaseState::hung) {
      node.lease->hang_behind(node.stream);
    }
    keep_memory_for(n);
  }
  if (guilty == nullptr) return;
  throw Error(ErrorKind::context_lost,
              "the work of plug-in " + guilty->description().short_name + " did not end within " +
                  std::to_string(broker.job_timeout().count()) +
                  " ms; its lease is hung, and the plug-in is not used any more",
              {.call = "process",
               .device = guilty->lease()->device_ordinal(),
               .tenant = guilty->tenant().name});
}

// After a failure: waits for what was enqueued, so that the buffers can be used again, or freed
// when the next job renews a lease. A context that was given up still works.
void Graph::Impl::settle() noexcept {
  for (const Node& node : nodes) {
    const Activation* const activation = node.instance->activation();
    if (activation == nullptr || activation->serial != node.activation) continue;
    if (!node.lease->can_wait()) continue;
    const ScopedSpan span(SpanCategory::wait, "wait after a failure", nullptr, host_tenant);
    const CUresult status =
        node.lease->report_status(wait_for(node.lease->table(), node.stream, broker.end_timeout()));
    if (status == CUDA_ERROR_TIMEOUT) {
      node.instance->hang(*node.lease, node.stream);
      keep_memory_for(static_cast<Index>(&node - nodes.data()));
    }
    if (status == CUDA_SUCCESS) node.instance->set_in_flight(false);
  }
}

// Returns the kernels that the suspects' plug-ins have launched last: " (kernel blur)", " (blur:
// kernel rows; merge: kernel over)". Empty: they launched none through the SDK.
std::string Graph::Impl::kernels_of(const std::vector<Index>& suspects) const {
  std::string text;
  for (const Index n : suspects) {
    const Instance& instance = *nodes[n].instance;
    const std::string kernels = instance.last_kernels();
    if (kernels.empty()) continue;
    text += text.empty() ? " (" : "; ";
    if (suspects.size() > 1) text += instance.description().short_name + ": ";
    text += kernels;
  }
  return text.empty() ? text : text + ")";
}

// After a fault: the nodes that can have caused it. Their work had begun and not ended, and they
// waited for nobody, neither for other nodes nor for their own work of an older job.
Graph::Impl::Suspects Graph::Impl::fault_suspects() const {
  std::vector<bool> is_open(nodes.size());
  std::vector<const JobFlight*> suspected_in(nodes.size());
  std::vector<const JobFlight*> jobs;
  for (const JobFlight& flight : flights) {
    if (flight.job > retired) jobs.push_back(&flight);
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const JobFlight* one, const JobFlight* other) { return one->job < other->job; });
  for (const JobFlight* const each : jobs) {
    const JobFlight& flight = *each;
    std::vector<bool> has_ended(nodes.size());
    for (std::size_t i = 0; i < flight.begun; ++i) {
      const Index n = wiring.order[i];
      has_ended[n] =
          flight.makes_marks[n] && flight.marked &&
          std::atomic_ref(*mark(flight, n)).load() == static_cast<std::uint32_t>(flight.job);
      if (has_ended[n]) continue;
      const std::vector<Index>& before = wiring.nodes[n].waits_for;
      const bool waits =
          flight.marked && (is_open[n] || std::any_of(before.begin(), before.end(),
                                                      [&](Index one) { return !has_ended[one]; }));
      if (!waits && suspected_in[n] == nullptr) suspected_in[n] = each;
      is_open[n] = true;
    }
  }
  // The software device knows whose work it was.
  const char* const owner = fault_details(nodes.front().lease->table()).owner;
  Suspects suspects;
  bool are_marked = options.jobs_in_flight > 1;
  for (const Index n : wiring.order) {
    const JobFlight* const flight = suspected_in[n];
    const char* const name = nodes[n].instance->tenant().lasting_name;
    if (flight == nullptr || (owner != nullptr && owner != name)) continue;
    suspects.nodes.push_back(n);
    are_marked = are_marked && flight->marked;
    const std::int64_t position = flight->info.position;
    const auto [first, last] = suspects.positions.value_or(std::pair(position, position));
    suspects.positions = std::pair(std::min(first, position), std::max(last, position));
  }
  if (!are_marked) suspects.positions.reset();
  return suspects;
}

// The error with the names of those that can have caused a fault, if there was one. The work of all
// others is no longer taken for a suspect.
std::optional<Error> Graph::Impl::named_fault(const Error& seen) {
  if (!broker.fault().happened()) return {};
  const auto [suspects, positions] = fault_suspects();
  std::string names;
  for (const Index n : suspects) {
    names += (names.empty() ? "" : ", ") + nodes[n].instance->description().short_name;
  }
  std::vector<bool> is_suspect(nodes.size());
  for (const Index n : suspects) is_suspect[n] = true;
  mark_in_flight(is_suspect);
  const Node& at = nodes[suspects.empty() ? wiring.order.back() : suspects.front()];
  const std::string who =
      suspects.empty()       ? "the job failed while no work of its plug-ins was under way"
      : suspects.size() == 1 ? "the work of plug-in " + names + " failed"
                             : "the work of one of the plug-ins " + names + " failed";
  std::string doing = who + kernels_of(suspects);
  if (positions) {
    const auto [first, last] = *positions;
    doing += first == last ? " at position " + std::to_string(first)
                           : " at one of the positions " + std::to_string(first) + " to " +
                                 std::to_string(last);
  }
  return driver_error(at.lease->table(), broker.fault().status(), seen.origin().call.c_str(), doing,
                      at.lease->owner());
}

void Graph::Impl::forget_jobs() noexcept {
  for (JobFlight& flight : flights) {
    if (flight.job != 0 && flight.done_call != nullptr) flight.done_call->cancel();
    flight.end();
  }
  waiting.clear();
  started = finished = retired = submitted;
  lines.interrupt();
}

void Graph::Impl::add_times(JobFlight& flight) noexcept {
  for (Index n = 0; n < nodes.size(); ++n) {
    const Node& node = nodes[n];
    std::uint64_t nanoseconds = 0;
    if (flight.is_timed) {
      const ContextGuard guard(node.lease->target());
      if (guard.status() == CUDA_SUCCESS) {
        nanoseconds = flight.times[n].take(*node.lease, node.instance->description().short_name);
      }
    }
    if (flight.job == started) node.instance->set_in_flight(false);
    WorkCounters* const counters[] = {&node.instance->counters(), &node.lease->work()};
    for (WorkCounters* each : counters) {
      count(each->jobs, 1);
      if (nanoseconds != 0) count(each->device_nanoseconds, nanoseconds);
    }
  }
}

// Runs `wait`, which waits for jobs. After an error, none is in flight.
template <typename Wait>
void Graph::Impl::settled_on_error(Wait&& wait) {
  try {
    wait();
  } catch (const Error& error) {
    settle();
    const std::optional<Error> fault = named_fault(error);
    forget_jobs();
    if (fault) throw Error(*fault);
    throw;
  }
}

// Waiting needs no context, so other threads can be in the lease meanwhile.
void Graph::Impl::wait_for_work(const JobFlight& flight) {
  const ScopedSpan span(SpanCategory::wait, "wait", nullptr, host_tenant);
  for (Index n = 0; n < nodes.size(); ++n) {
    if (!flight.ended[n]) continue;
    const Instance& instance = *nodes[n].instance;
    const RunningNote note(instance.lasting_id(), instance.lasting_library(), work_on_device);
    const CUresult status =
        wait_for_event(nodes[n].lease->table(), flight.ended[n].get(), broker.job_timeout());
    wait(n, status, &flight, "the job's work on the device failed");
  }
}

// All work is done. For the driver, a function of a plug-in that threw is no failure of the work
// behind it.
void Graph::Impl::check_functions() {
  for (const Node& at : nodes) {
    if (!take_failed_work(at.lease->tenant().id, at.stream, FailureReader::job)) continue;
    throw Error(ErrorKind::plugin_failed,
                "a function of plug-in " + at.instance->description().short_name +
                    " that the driver called during the job threw an exception or ended its "
                    "thread; the job's outputs may be incomplete",
                {.call = "cuLaunchHostFunc",
                 .device = at.lease->device_ordinal(),
                 .tenant = at.lease->tenant().name});
  }
}

// False: the deadline has passed, and the work is not done.
bool Graph::Impl::wait_until_deadline(const JobFlight& flight) {
  if (flight.deadline == JobClock::time_point::max() || flight.is_told()) return true;
  const ScopedSpan span(SpanCategory::wait, "wait", nullptr, host_tenant);
  const std::chrono::nanoseconds timeout = broker.job_timeout();
  for (Index n = 0; n < nodes.size(); ++n) {
    if (!flight.ended[n]) continue;
    const DriverTable& driver = nodes[n].lease->table();
    const BesideCaptures beside(driver);
    const std::chrono::nanoseconds left = flight.deadline - JobClock::now();
    if (timeout.count() > 0 && left > timeout) return true;  // the timeout comes first
    const Instance& instance = *nodes[n].instance;
    const RunningNote note(instance.lasting_id(), instance.lasting_library(), work_on_device);
    const CUresult status = left.count() > 0 ? wait_for_event(driver, flight.ended[n].get(), left)
                                             : driver.event_query(flight.ended[n].get());
    if (status == CUDA_ERROR_TIMEOUT || status == CUDA_ERROR_NOT_READY) return false;
    wait(n, status, &flight, "the job's work on the device failed");
  }
  return true;
}

void Graph::Impl::count_late(const JobFlight& flight) noexcept {
  for (Index n = 0; n < nodes.size(); ++n) {
    const Node& node = nodes[n];
    const BesideCaptures beside(node.lease->table());
    if (node.lease->table().event_query(last_event(flight, n)) == CUDA_ERROR_NOT_READY) {
      count(node.instance->counters().late_jobs, 1);
    }
  }
}

void Graph::Impl::give_outputs(JobFlight& flight) const noexcept {
  for (Index port = 0; port < wiring.outputs.size(); ++port) {
    if (!flight.downloads[port] || flight.is_direct[flight.inputs.size() + port]) continue;
    const Index value = wiring.outputs[port];
    give_rows(flight, value, given_part(flight, value), flight.outputs[port],
              flight.downloads[port].get());
  }
}

void Graph::Impl::give_dry(const JobFlight& flight) const noexcept {
  for (Index port = 0; port < wiring.outputs.size(); ++port) {
    const Index output = wiring.outputs[port];
    if (is_image(output)) {
      give_dry_image(flight, port);
      continue;
    }
    const Maybe input = dry_source(wiring, port);
    const HostDelayLine* const line = input ? lines.dry(*input) : nullptr;
    if (line != nullptr) {
      line->give(static_cast<float*>(flight.outputs[port]));
    } else if (input) {
      std::memcpy(flight.outputs[port], flight.uploads[*input].get(), bytes_of(flight, output));
    } else {
      std::memset(flight.outputs[port], 0, bytes_of(flight, output));
    }
  }
}

// Gives back what jobs up to this one had in flight, when their work is done. Work is done in the
// order of the jobs.
void Graph::Impl::retire_through(std::uint64_t job) {
  const JobFlight* const last = flight_of(job);
  if (last != nullptr) {
    settled_on_error([&] {
      wait_for_work(*last);
      check_functions();
    });
  }
  for (JobFlight* flight = flight_after(0); flight != nullptr && flight->job <= job;
       flight = flight_after(0)) {
    add_times(*flight);
    flight->end();
  }
  retired = job;
}

void Graph::Impl::finish_oldest() {
  JobFlight& flight = *flight_after(finished);
  const std::uint64_t job = flight.job;
  bool in_time = true;
  settled_on_error([&] { in_time = wait_until_deadline(flight); });
  if (!in_time) count_late(flight);
  lines.add_dry(flight.uploads, flight.info, wiring, flight.begins_anew);
  JobOutcome outcome = in_time ? JobOutcome::done : JobOutcome::late;
  if (in_time || options.late == LateJobs::deliver) {
    retire_through(job);
    give_outputs(flight);
  } else if (options.late == LateJobs::dry) {
    give_dry(flight);
    outcome = JobOutcome::dry;
  } else {
    outcome = JobOutcome::dropped;
  }
  finished = job;
  remember({job, outcome});
}

void Graph::Impl::finish_all() {
  while (flight_after(finished) != nullptr) finish_oldest();
  if (retired < started) retire_through(started);
}

}  // namespace ctxbroker
