// SPDX-License-Identifier: Apache-2.0
// Graph: starts one job.
#include <algorithm>
#include <cstring>
#include <string>

#include "context/timed_wait.hpp"
#include "ctxbroker/error.hpp"
#include "graph/graph_impl.hpp"
#include "observe/span.hpp"

namespace ctxbroker {

using namespace detail;  // the rooms behind this header

namespace {

JobClock::time_point deadline_of(JobClock::time_point begin, std::uint64_t nanoseconds) noexcept {
  const auto left = static_cast<std::uint64_t>((JobClock::time_point::max() - begin).count());
  return nanoseconds < left ? begin + std::chrono::nanoseconds(nanoseconds)
                            : JobClock::time_point::max();
}

}  // namespace

void Graph::Impl::check_call(Index node, CUresult status, const char* call, const char* doing) {
  nodes[node].lease->report_status(status);
  check_call_between(node, status, call, doing);
}

void Graph::Impl::check_entered(Index node, CUresult entered) {
  if (entered == CUDA_SUCCESS) return;
  const Node& at = nodes[node];
  at.lease->report_status(entered);
  throw at.lease->entry_error(entered, "the lease cannot be entered (plug-in " +
                                           at.instance->description().short_name + ")");
}

Error Graph::Impl::breach(Index node, const char* function, const std::string& why) const {
  const Node& at = nodes[node];
  at.instance->strike(function, why.c_str());
  return {
      ErrorKind::plugin_failed,
      "plug-in " + at.instance->description().short_name + " " + why,
      {.call = function, .device = at.lease->device_ordinal(), .tenant = at.lease->tenant().name}};
}

// For calls with handles of two leases: which of them is lost is for settle to find out.
void Graph::Impl::check_call_between(Index node, CUresult status, const char* call,
                                     const char* doing) {
  if (status == CUDA_SUCCESS) return;
  const Node& at = nodes[node];
  if (is_process_fault(status)) at.lease->report_status(status);
  throw driver_error(
      at.lease->table(), status, call,
      std::string(doing) + " (plug-in " + at.instance->description().short_name + ")",
      at.lease->owner());
}

// `region` is what the plug-in gets of an image.
ctxb_buffer Graph::Impl::buffer(const JobFlight& flight, Index value, Index buffer,
                                const Rectangle& region) const noexcept {
  const Format& format = wiring.values[value].format;
  const bool is_results = format.result_bytes != 0;
  const bool is_image = format.media == Media::image;
  ctxb_buffer made{};
  made.size = sizeof made;
  made.media = is_results ? CTXB_MEDIA_RESULTS : is_image ? CTXB_MEDIA_IMAGE : CTXB_MEDIA_AUDIO;
  made.data = flight.buffers[buffer].get();
  made.row_pitch = row_bytes(format, flight.info.width);
  made.width = is_results ? format.result_bytes : flight.info.width;
  made.height = is_results                          ? 1
                : !is_image && format.channels != 0 ? format.channels
                                                    : flight.info.height;
  made.channels = is_image && !is_results ? format.channels : 1;
  made.samples = is_results ? 0 : static_cast<std::uint32_t>(format.samples);
  made.position = flight.info.position + wiring.values[value].frame;
  if (!is_image || is_results) return made;
  const Layout part = part_of(layout(flight, value, buffer), format, region);
  made.data += part.offset;
  made.row_pitch = part.pitch;
  made.width = region.width;
  made.height = region.height;
  made.x = region.x;
  made.y = region.y;
  made.extent = flight.regions.extents[value];
  return made;
}

ctxb_buffer Graph::Impl::input_buffer(const JobFlight& flight, Index node, Index feed) noexcept {
  const Maybe value = wiring.nodes[node].inputs[feed];
  if (!value) {
    ctxb_buffer none{};
    none.size = sizeof none;
    return none;
  }
  const Rectangle region = is_image(*value) ? flight.regions.feeds[node][feed] : Rectangle{};
  ctxb_buffer here =
      buffer(flight, *value, plan.copies[node][feed].value_or(plan.of_value[*value]), region);
  if (const DelayLine* line = lines.input(node, feed)) here.data = line->delayed();
  return here;
}

// Makes the node's stream wait for an input, and copies it to the node's memory when it lies in
// other memory. Inside the node's guard.
void Graph::Impl::bring_here(JobFlight& flight, Index node, Index feed) {
  const DriverTable& driver = nodes[node].lease->table();
  CUstream const stream = nodes[node].stream;
  const Index index = *wiring.nodes[node].inputs[feed];
  const Value& value = wiring.values[index];
  if (!value.node && value.readers.front() != node) {
    check_call_between(node, driver.stream_wait_event(stream, flight.uploaded[index].get(), 0),
                       "cuStreamWaitEvent", "the upload cannot be waited for");
  }
  const Maybe copy = plan.copies[node][feed];
  if (!copy) return;
  const std::uint64_t bytes = bytes_of(flight, index);
  const ScopedSpan span(SpanCategory::copy, "copy between contexts", nullptr, host_tenant, bytes);
  const auto address = [&](Index which) { return flight.buffers[which].get(); };
  const auto context = [&](Index which) {
    return nodes[plan.buffers[which].home].lease->memory_context();
  };
  const Index source = plan.of_value[index];
  check_call_between(node,
                     driver.memcpy_peer_async(address(*copy), context(*copy),
                                              address(source) + flight.regions.values[index].offset,
                                              context(source), bytes, stream),
                     "cuMemcpyPeerAsync", "the samples cannot be copied between two contexts");
}

// Fills `inputs` and `feeds` for the node's plug-in.
void Graph::Impl::gather(const JobFlight& flight, Index node) noexcept {
  const std::vector<Feed>& all = wiring.nodes[node].feeds;
  for (Index first = 0, end = 0; first < all.size(); first = end) {
    Index own = first;
    for (; end < all.size() && all[end].port == all[first].port; ++end) {
      feeds[end] = input_buffer(flight, node, end);
      if (all[end].frame == 0) own = end;
    }
    ctxb_buffer& input = inputs[all[first].port];
    input = feeds[own];
    if (end - first == 1) continue;
    input.frames = &feeds[first];
    input.frame_count = static_cast<std::uint32_t>(end - first);
  }
}

// Inside the node's guard.
void Graph::Impl::process(JobFlight& flight, Index node) {
  const Node& at = nodes[node];
  const WiredNode& wired = wiring.nodes[node];
  gather(flight, node);
  for (Index port = 0; port < wired.outputs.size(); ++port) {
    const Index value = wired.outputs[port];
    outputs[port] = value == unused ? ctxb_buffer{}
                                    : buffer(flight, value, plan.of_value[value],
                                             flight.regions.values[value].region);
    outputs[port].size = sizeof(ctxb_buffer);
  }
  ctxb_job given{};
  given.position = flight.info.position + wired.frame;
  given.sample_rate = flight.info.sample_rate;
  given.deadline_ns = flight.info.deadline_ns;
  given.inputs = inputs.data();
  given.outputs = outputs.data();
  given.input_count = static_cast<std::uint32_t>(wired.plugin->inputs.size());
  given.output_count = static_cast<std::uint32_t>(wired.outputs.size());
  given.discontinuity = flight.info.discontinuity || wired.is_repeated ? 1 : 0;
  changes.give(*at.instance, given);
  const auto staging =
      static_cast<std::size_t>(&flight - flights.data()) * at.appearances + at.appearance;
  Instance::Processed processed = at.instance->process(given, staging);
  if (processed.outcome.ran() && processed.status == CTXB_AGAIN) {
    // Once more, when all is done that the first try may have enqueued; then it is an error.
    wait(node, wait_for(at.lease->table(), at.stream, broker.job_timeout()), nullptr,
         "the plug-in's work failed");
    processed = at.instance->process(given, staging);
  }
  if (!processed.outcome.ran() ||
      (processed.status != CTXB_OK && processed.status != CTXB_BYPASS)) {
    throw at.instance->failure("process", processed.outcome, processed.status);
  }
  if (processed.status == CTXB_BYPASS) bypass(flight, node);
}

// The first connected input that is no side-chain becomes every output; results become zeros.
void Graph::Impl::bypass(JobFlight& flight, Index node) {
  const WiredNode& wired = wiring.nodes[node];
  const Node& at = nodes[node];
  const DriverTable& driver = at.lease->table();
  check_no_latency(node);
  Maybe first;
  for (Index feed = wired.inputs.size(); feed-- > 0;) {
    const Feed& its = wired.feeds[feed];
    if (wired.inputs[feed] && its.frame == 0 && !wired.plugin->inputs[its.port].side_chain) {
      first = feed;
    }
  }
  for (Index port = 0; port < wired.outputs.size(); ++port) {
    const Index value = wired.outputs[port];
    if (value == unused) continue;
    const Format& format = wiring.values[value].format;
    const CUdeviceptr to = flight.buffers[plan.of_value[value]].get();
    if (format.result_bytes != 0) {
      check_call(node, driver.memset_d32_async(to, 0, (format.result_bytes + 3) / 4, at.stream),
                 "cuMemsetD32Async", "the results cannot be cleared");
      continue;
    }
    if (!first || !(wiring.values[*wired.inputs[*first]].format == format)) {
      throw breach(node, "process",
                   "answered CTXB_BYPASS, and its output " + wired.plugin->outputs[port].id +
                       " has no input of the same format that could pass");
    }
    if (is_image(value)) {
      pass_image(flight, node, *first, value);
      continue;
    }
    const CUdeviceptr from = input_buffer(flight, node, *first).data;
    if (from == to) continue;
    check_call(node, driver.memcpy_dtod_async(to, from, bytes_of(flight, value), at.stream),
               "cuMemcpyDtoDAsync_v2", "the input cannot be passed on");
  }
}

void Graph::Impl::mark_end(JobFlight& flight, Index node) noexcept {
  const auto address = reinterpret_cast<CUdeviceptr>(mark(flight, node));
  const CUresult status = nodes[node].lease->table().memset_d32_async(
      address, static_cast<unsigned int>(flight.job), 1, nodes[node].stream);
  // After a fault there are no marks any more, and that tells what had not ended.
  if (status != CUDA_SUCCESS && !is_process_fault(status)) flight.marked = false;
}

// Hands over to the nodes that wait for this one, and gives the host its outputs.
void Graph::Impl::end_node(JobFlight& flight, Index node) {
  const Node& at = nodes[node];
  const DriverTable& driver = at.lease->table();
  // Before the event, so that the mark is there when the work of others begins.
  if (flight.makes_marks[node]) mark_end(flight, node);
  if (flight.handed_over[node]) {
    check_call(node, driver.event_record(flight.handed_over[node].get(), at.stream),
               "cuEventRecord", "the end of the work cannot be marked");
  }
  if (!flight.ended[node]) return;
  download(flight, node);
  // In front of the event, so that who is told can finish the job.
  if (flight.done_call != nullptr) {
    check_call(node, flight.done_call->follow(driver, at.stream), "cuLaunchHostFunc",
               "the host cannot be told of the end of the job");
  }
  check_call(node, driver.event_record(flight.ended[node].get(), at.stream), "cuEventRecord",
             "the end of the job cannot be marked");
}

void Graph::Impl::enqueue(JobFlight& flight, Index node) {
  const Node& at = nodes[node];
  const WiredNode& wired = wiring.nodes[node];
  const DriverTable& driver = at.lease->table();
  NodeTimes* const times = flight.is_timed ? &flight.times[node] : nullptr;
  const ContextGuard guard(at.lease->target(), blame(node));
  check_entered(node, guard.status());
  if (times != nullptr) times->tie_clocks(driver, at.stream);
  for (Index value = 0; value < flight.uploads.size(); ++value) {
    if (wiring.values[value].readers.front() == node) upload(flight, node, value);
  }
  for (const Index before : wired.waits_for) {
    check_call_between(node,
                       driver.stream_wait_event(at.stream, flight.handed_over[before].get(), 0),
                       "cuStreamWaitEvent", "the work before cannot be waited for");
  }
  for (Index feed = 0; feed < wired.inputs.size(); ++feed) {
    if (!wired.inputs[feed]) continue;
    bring_here(flight, node, feed);
    delay_input(flight, node, feed);
  }
  const auto take_time = [&](const Event& event) {
    check_call(node, driver.event_record(event.get(), at.stream), "cuEventRecord",
               "the time of the work cannot be taken");
  };
  if (times != nullptr) take_time(times->begin());
  ++flight.begun;
  process(flight, node);
  if (times != nullptr) take_time(times->end());
  end_node(flight, node);
}

void Graph::Impl::run(JobFlight& flight, const JobBuffers& buffers) {
  for (Index port = 0; port < buffers.inputs.size(); ++port) {
    if (flight.uploads[port] && !flight.is_direct[port]) {
      broker.copy_crew().copy(flight.uploads[port].get(), buffers.inputs[port],
                              bytes_of(flight, port));
    }
  }
  if (buffers.after != nullptr) mark_given(flight, buffers.after);
  for (const Index node : wiring.order) enqueue(flight, node);
}

// Finds the blocks of host memory that a job's buffers lie in: inputs, then outputs.
void Graph::Impl::find_blocks(const JobBuffers& buffers,
                              std::vector<std::shared_ptr<HostBlock>>& found) {
  host_blocks.update(broker.host_blocks(), !is_realtime);
  for (Index i = 0; i < buffers.inputs.size(); ++i) {
    const bool on_device = device_ports.inputs[wiring.values[i].port];
    found[i] = on_device ? nullptr : host_blocks.find(buffers.inputs[i]);
  }
  for (Index port = 0; port < buffers.outputs.size(); ++port) {
    found[buffers.inputs.size() + port] =
        device_ports.outputs[port] ? nullptr : host_blocks.find(buffers.outputs[port]);
  }
}

// A buffer that begins in a block must end there.
void Graph::Impl::check_blocks(const JobFlight& flight) const {
  const auto check_one = [&](Index buffer, const void* address, std::uint64_t bytes) {
    if (flight.blocks[buffer] == nullptr) return;
    const HostPages& pages = *flight.blocks[buffer]->pages();
    const auto offset =
        static_cast<std::uint64_t>(static_cast<const std::byte*>(address) - pages.begin());
    if (bytes <= pages.bytes() - offset) return;
    throw Error(ErrorKind::invalid_argument, "graph: a buffer of " + std::to_string(bytes) +
                                                 " bytes begins at byte " + std::to_string(offset) +
                                                 " of host memory that has " +
                                                 std::to_string(pages.bytes()) +
                                                 "; make the HostMemory larger, or begin earlier");
  };
  for (Index v = 0; v < flight.inputs.size(); ++v) {
    check_one(v, flight.inputs[v], bytes_of(flight, v));
  }
  for (Index port = 0; port < flight.outputs.size(); ++port) {
    const Index value = wiring.outputs[port];
    check_one(flight.inputs.size() + port, flight.outputs[port],
              given_row_bytes(flight, value) * given_part(flight, value).region.height);
  }
}

// Late work goes on when the job is finished, and must not use the host's memory then.
bool Graph::Impl::lies_in_registered(const JobFlight& flight, Index buffer) const noexcept {
  return flight.blocks[buffer] != nullptr && options.late == LateJobs::deliver &&
         flight.blocks[buffer]->is_registered();
}

// Rows that lie apart on the device are put together in the graph's own memory. And an input that
// may be uploaded later must not have the output in its place.
bool Graph::Impl::can_be_direct(const JobFlight& flight, Index port) const noexcept {
  const Index output = wiring.outputs[port];
  const Layout part = given_part(flight, output);
  const std::uint64_t row = given_row_bytes(flight, output);
  if (part.pitch != row) return false;
  const auto* const begin = static_cast<const std::byte*>(flight.outputs[port]);
  const Index node = *wiring.values[output].node;
  for (Index v = 0; v < flight.inputs.size(); ++v) {
    const auto* const input = static_cast<const std::byte*>(flight.inputs[v]);
    const bool overlaps =
        begin < input + bytes_of(flight, v) && input < begin + row * part.region.height;
    const Index reader = wiring.values[v].readers.front();  // it uploads the input
    if (overlaps && flight.is_direct[v] && reader != node &&
        !wiring.nodes[node].comes_after[reader]) {
      return false;
    }
  }
  return true;
}

// After find_regions. A job that is refused changes nothing.
void Graph::Impl::take_buffers(JobFlight& flight, const JobBuffers& buffers, const JobInfo& job) {
  flight.info = job;
  flight.inputs = buffers.inputs;
  flight.outputs = buffers.outputs;
  find_blocks(buffers, flight.blocks);
  try {
    check_blocks(flight);
  } catch (...) {
    flight.end();
    throw;
  }
}

void Graph::Impl::begin(JobFlight& flight, std::uint64_t number, CUstream after) {
  flight.job = number;
  flight.begun = 0;
  flight.marked = options.name_faults;
  // A job that failed has left marks with the same number.
  std::memset(flight.marks.get(), 0, nodes.size() * sizeof(std::uint32_t));
  for (Index i = 0; i < flight.is_direct.size(); ++i) {
    flight.is_direct[i] = (i < is_direct.size() && is_direct[i]) || lies_in_registered(flight, i);
  }
  for (Index port = 0; port < flight.outputs.size(); ++port) {
    if (!can_be_direct(flight, port)) flight.is_direct[flight.inputs.size() + port] = false;
  }
  flight.is_given = after != nullptr;
  flight.is_timed = options.measure || timeline_observed();
  while (flight.is_timed && flight.times.size() < nodes.size()) {
    flight.times.emplace_back(nodes[flight.times.size()].lease);
  }
  if (flight.done_call != nullptr) flight.done_call->begin(flight.job);
}

// Waits if there is no room.
void Graph::Impl::start(std::uint64_t number, const JobBuffers& buffers, JobInfo job,
                        const JobEvents& events, JobClock::time_point submitted_at) {
  check_job(buffers, job);
  changes.take(events, job);
  if (renew_lost_nodes() || is_renewed) job.discontinuity = true;
  is_renewed = false;
  const auto is_free = [](const JobFlight& one) { return one.job == 0; };
  const auto free = std::find_if(flights.begin(), flights.end(), is_free);
  JobFlight& flight = free != flights.end() ? *free : *flight_after(0);
  if (flight.job > finished) finish_oldest();
  if (flight.job != 0) retire_through(flight.job);
  flight.deadline = job.deadline_ns == 0 ? JobClock::time_point::max()
                                         : deadline_of(submitted_at, job.deadline_ns);
  for (const Node& node : nodes) node.instance->take_parameters();
  changes.set_first_values();
  find_regions(flight.regions, job);
  take_buffers(flight, buffers, job);
  flight.begins_anew = lines.begin_job(job);
  try {
    begin(flight, number, buffers.after);
    run(flight, buffers);
  } catch (const Error& error) {
    settle();
    const std::optional<Error> fault = named_fault(error);
    flight.end();
    if (fault) throw Error(*fault);
    throw;
  } catch (...) {
    settle();
    flight.end();
    throw;
  }
  lines.end_job();
  changes.set_next_values();
  started = number;
  if (flight.done_call != nullptr) flight.done_call->end_of_submit();
}

}  // namespace ctxbroker
