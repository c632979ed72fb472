// SPDX-License-Identifier: Apache-2.0
// Graph: starts one job.
#include <algorithm>
#include <cstring>
#include <string>

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

void Graph::Impl::must(Index node, CUresult status, const char* call, const char* doing) {
  nodes[node].lease->report_status(status);
  must_between(node, status, call, doing);
}

void Graph::Impl::must_be_inside(Index node, CUresult entered) {
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
void Graph::Impl::must_between(Index node, CUresult status, const char* call, const char* doing) {
  if (status == CUDA_SUCCESS) return;
  const Node& at = nodes[node];
  if (is_process_fault(status)) at.lease->report_status(status);
  throw driver_error(
      at.lease->table(), status, call,
      std::string(doing) + " (plug-in " + at.instance->description().short_name + ")",
      at.lease->owner());
}

// `region` is what the plug-in gets of an image.
ctxb_buffer Graph::Impl::buffer(const JobSlot& slot, Index value, Index buffer,
                                const Rectangle& region) const noexcept {
  const Format& format = wiring.values[value].format;
  const bool is_results = format.result_bytes != 0;
  const bool is_image = format.media == Media::image;
  ctxb_buffer made{};
  made.size = sizeof made;
  made.media = is_results ? CTXB_MEDIA_RESULTS : is_image ? CTXB_MEDIA_IMAGE : CTXB_MEDIA_AUDIO;
  made.data = slot.buffers[buffer].get();
  made.row_pitch = row_bytes(format, slot.info.width);
  made.width = is_results ? format.result_bytes : slot.info.width;
  made.height = is_results                          ? 1
                : !is_image && format.channels != 0 ? format.channels
                                                    : slot.info.height;
  made.channels = is_image && !is_results ? format.channels : 1;
  made.samples = is_results ? 0 : static_cast<std::uint32_t>(format.samples);
  made.position = slot.info.position + wiring.values[value].frame;
  if (!is_image || is_results) return made;
  const Layout part = part_of(layout(slot, value, buffer), format, region);
  made.data += part.offset;
  made.row_pitch = part.pitch;
  made.width = region.width;
  made.height = region.height;
  made.x = region.x;
  made.y = region.y;
  made.extent = slot.regions.extents[value];
  return made;
}

ctxb_buffer Graph::Impl::input_buffer(const JobSlot& slot, Index node, Index feed) noexcept {
  const Maybe value = wiring.nodes[node].inputs[feed];
  if (!value) {
    ctxb_buffer none{};
    none.size = sizeof none;
    return none;
  }
  const Rectangle region = is_image(*value) ? slot.regions.feeds[node][feed] : Rectangle{};
  ctxb_buffer here =
      buffer(slot, *value, plan.copies[node][feed].value_or(plan.of_value[*value]), region);
  if (const DelayLine* line = lines.input(node, feed)) here.data = line->delayed();
  return here;
}

// Makes the node's stream wait for an input, and copies it to the node's memory when it lies in
// other memory. Inside the node's guard.
void Graph::Impl::bring_here(JobSlot& slot, Index node, Index feed) {
  const DriverTable& driver = nodes[node].lease->table();
  CUstream const stream = nodes[node].stream;
  const Index index = *wiring.nodes[node].inputs[feed];
  const Value& value = wiring.values[index];
  if (!value.node && value.readers.front() != node) {
    must_between(node, driver.stream_wait_event(stream, slot.uploaded[index].get(), 0),
                 "cuStreamWaitEvent", "the upload cannot be waited for");
  }
  const Maybe copy = plan.copies[node][feed];
  if (!copy) return;
  const std::uint64_t bytes = bytes_of(slot, index);
  const ScopedSpan span(SpanCategory::copy, "copy between contexts", nullptr, host_tenant, bytes);
  const auto address = [&](Index which) { return slot.buffers[which].get(); };
  const auto context = [&](Index which) {
    return nodes[plan.buffers[which].home].lease->memory_context();
  };
  const Index source = plan.of_value[index];
  must_between(node,
               driver.memcpy_peer_async(address(*copy), context(*copy),
                                        address(source) + slot.regions.values[index].offset,
                                        context(source), bytes, stream),
               "cuMemcpyPeerAsync", "the samples cannot be copied between two contexts");
}

// Fills `inputs` and `feeds` for the node's plug-in.
void Graph::Impl::gather(const JobSlot& slot, Index node) noexcept {
  const std::vector<Feed>& all = wiring.nodes[node].feeds;
  for (Index first = 0, end = 0; first < all.size(); first = end) {
    Index own = first;
    for (; end < all.size() && all[end].port == all[first].port; ++end) {
      feeds[end] = input_buffer(slot, node, end);
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
void Graph::Impl::process(JobSlot& slot, Index node) {
  const Node& at = nodes[node];
  const WiredNode& wired = wiring.nodes[node];
  gather(slot, node);
  for (Index port = 0; port < wired.outputs.size(); ++port) {
    const Index value = wired.outputs[port];
    outputs[port] = value == unused ? ctxb_buffer{}
                                    : buffer(slot, value, plan.of_value[value],
                                             slot.regions.values[value].region);
    outputs[port].size = sizeof(ctxb_buffer);
  }
  ctxb_job given{};
  given.position = slot.info.position + wired.frame;
  given.sample_rate = slot.info.sample_rate;
  given.deadline_ns = slot.info.deadline_ns;
  given.inputs = inputs.data();
  given.outputs = outputs.data();
  given.input_count = static_cast<std::uint32_t>(wired.plugin->inputs.size());
  given.output_count = static_cast<std::uint32_t>(wired.outputs.size());
  given.discontinuity = slot.info.discontinuity || wired.is_repeated ? 1 : 0;
  changes.give(*at.instance, given);
  const auto staging =
      static_cast<std::size_t>(&slot - slots.data()) * at.appearances + at.appearance;
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
  if (processed.status == CTXB_BYPASS) bypass(slot, node);
}

// The first connected input that is no side-chain becomes every output; results become zeros.
void Graph::Impl::bypass(JobSlot& slot, Index node) {
  const WiredNode& wired = wiring.nodes[node];
  const Node& at = nodes[node];
  const DriverTable& driver = at.lease->table();
  must_not_be_late(node);
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
    const CUdeviceptr to = slot.buffers[plan.of_value[value]].get();
    if (format.result_bytes != 0) {
      must(node, driver.memset_d32_async(to, 0, (format.result_bytes + 3) / 4, at.stream),
           "cuMemsetD32Async", "the results cannot be cleared");
      continue;
    }
    if (!first || !(wiring.values[*wired.inputs[*first]].format == format)) {
      throw breach(node, "process",
                   "answered CTXB_BYPASS, and its output " + wired.plugin->outputs[port].id +
                       " has no input of the same format that could pass");
    }
    if (is_image(value)) {
      pass_image(slot, node, *first, value);
      continue;
    }
    const CUdeviceptr from = input_buffer(slot, node, *first).data;
    if (from == to) continue;
    must(node, driver.memcpy_dtod_async(to, from, bytes_of(slot, value), at.stream),
         "cuMemcpyDtoDAsync_v2", "the input cannot be passed on");
  }
}

void Graph::Impl::mark_end(JobSlot& slot, Index node) noexcept {
  const auto address = reinterpret_cast<CUdeviceptr>(mark(slot, node));
  const CUresult status = nodes[node].lease->table().memset_d32_async(
      address, static_cast<unsigned int>(slot.job), 1, nodes[node].stream);
  // After a fault there are no marks any more, and that tells what had not ended.
  if (status != CUDA_SUCCESS && !is_process_fault(status)) slot.marked = false;
}

// Hands over to the nodes that wait for this one, and gives the host its outputs.
void Graph::Impl::end_node(JobSlot& slot, Index node) {
  const Node& at = nodes[node];
  const DriverTable& driver = at.lease->table();
  // Before the event, so that the mark is there when the work of others begins.
  if (slot.makes_marks[node]) mark_end(slot, node);
  if (slot.handed_over[node]) {
    must(node, driver.event_record(slot.handed_over[node].get(), at.stream), "cuEventRecord",
         "the end of the work cannot be marked");
  }
  if (!slot.ended[node]) return;
  download(slot, node);
  // In front of the event, so that who is told can finish the job.
  if (slot.done_call != nullptr) {
    must(node, slot.done_call->follow(driver, at.stream), "cuLaunchHostFunc",
         "the host cannot be told of the end of the job");
  }
  must(node, driver.event_record(slot.ended[node].get(), at.stream), "cuEventRecord",
       "the end of the job cannot be marked");
}

void Graph::Impl::enqueue(JobSlot& slot, Index node) {
  const Node& at = nodes[node];
  const WiredNode& wired = wiring.nodes[node];
  const DriverTable& driver = at.lease->table();
  NodeTimes* const times = slot.is_timed ? &slot.times[node] : nullptr;
  const ContextGuard guard(at.lease->target(), blame(node));
  must_be_inside(node, guard.status());
  if (times != nullptr) times->tie_clocks(driver, at.stream);
  for (Index value = 0; value < slot.uploads.size(); ++value) {
    if (wiring.values[value].readers.front() == node) upload(slot, node, value);
  }
  for (const Index before : wired.waits_for) {
    must_between(node, driver.stream_wait_event(at.stream, slot.handed_over[before].get(), 0),
                 "cuStreamWaitEvent", "the work before cannot be waited for");
  }
  for (Index feed = 0; feed < wired.inputs.size(); ++feed) {
    if (!wired.inputs[feed]) continue;
    bring_here(slot, node, feed);
    delay_input(slot, node, feed);
  }
  const auto take_time = [&](const Event& event) {
    must(node, driver.event_record(event.get(), at.stream), "cuEventRecord",
         "the time of the work cannot be taken");
  };
  if (times != nullptr) take_time(times->begin());
  ++slot.begun;
  process(slot, node);
  if (times != nullptr) take_time(times->end());
  end_node(slot, node);
}

void Graph::Impl::run(JobSlot& slot, const JobBuffers& buffers) {
  for (Index end = 0; end < buffers.inputs.size(); ++end) {
    if (slot.uploads[end] && !slot.is_direct[end]) {
      std::memcpy(slot.uploads[end].get(), buffers.inputs[end], bytes_of(slot, end));
    }
  }
  if (buffers.after != nullptr) mark_given(slot, buffers.after);
  for (const Index node : wiring.order) enqueue(slot, node);
}

// Rows that lie apart on the device are put together in the graph's own memory. And an input that
// may be uploaded later must not have the output in its place.
bool Graph::Impl::can_be_direct(const JobSlot& slot, Index end) const noexcept {
  const Index output = wiring.outputs[end];
  const Layout part = given_part(slot, output);
  const std::uint64_t row = given_row_bytes(slot, output);
  if (part.pitch != row) return false;
  const auto* const begin = static_cast<const std::byte*>(slot.outputs[end]);
  const Index node = *wiring.values[output].node;
  for (Index v = 0; v < slot.inputs.size(); ++v) {
    const auto* const input = static_cast<const std::byte*>(slot.inputs[v]);
    const bool overlaps =
        begin < input + bytes_of(slot, v) && input < begin + row * part.region.height;
    const Index reader = wiring.values[v].readers.front();  // it uploads the input
    if (overlaps && slot.is_direct[v] && reader != node &&
        !wiring.nodes[node].comes_after[reader]) {
      return false;
    }
  }
  return true;
}

void Graph::Impl::begin(JobSlot& slot, std::uint64_t number, const JobBuffers& buffers,
                        const JobInfo& job) {
  slot.job = number;
  slot.begun = 0;
  slot.marked = options.name_faults;
  // A job that failed has left marks with the same number.
  std::memset(slot.marks.get(), 0, nodes.size() * sizeof(std::uint32_t));
  slot.info = job;
  slot.inputs = buffers.inputs;
  slot.outputs = buffers.outputs;
  slot.is_direct = is_direct;
  slot.is_direct.resize(slot.inputs.size() + slot.outputs.size());
  for (Index end = 0; end < slot.outputs.size(); ++end) {
    if (!can_be_direct(slot, end)) slot.is_direct[slot.inputs.size() + end] = false;
  }
  slot.is_given = buffers.after != nullptr;
  slot.is_timed = options.measure || timeline_observed();
  while (slot.is_timed && slot.times.size() < nodes.size()) {
    slot.times.emplace_back(nodes[slot.times.size()].lease);
  }
  if (slot.done_call != nullptr) slot.done_call->begin(slot.job);
}

// Waits if there is no room.
void Graph::Impl::start(std::uint64_t number, const JobBuffers& buffers, JobInfo job,
                        const JobEvents& events, JobClock::time_point submitted_at) {
  check_job(buffers, job);
  changes.take(events, job);
  if (renew_lost_nodes() || is_renewed) job.discontinuity = true;
  is_renewed = false;
  const auto is_free = [](const JobSlot& one) { return one.job == 0; };
  const auto free = std::find_if(slots.begin(), slots.end(), is_free);
  JobSlot& slot = free != slots.end() ? *free : *slot_after(0);
  if (slot.job > finished) finish_oldest();
  if (slot.job != 0) retire_through(slot.job);
  slot.deadline = job.deadline_ns == 0 ? JobClock::time_point::max()
                                       : deadline_of(submitted_at, job.deadline_ns);
  for (const Node& node : nodes) node.instance->take_parameters();
  changes.set_first_values();
  find_regions(slot.regions, job);
  slot.begins_anew = lines.begin_job(job);
  try {
    begin(slot, number, buffers, job);
    run(slot, buffers);
  } catch (const Error& error) {
    settle();
    const std::optional<Error> fault = named_fault(error);
    slot.job = 0;
    if (fault) throw Error(*fault);
    throw;
  } catch (...) {
    settle();
    slot.job = 0;
    throw;
  }
  lines.end_job();
  changes.set_next_values();
  started = number;
  if (slot.done_call != nullptr) slot.done_call->end_of_submit();
}

}  // namespace ctxbroker
