// SPDX-License-Identifier: Apache-2.0
// The jobs of a graph in several processes: one process after the other.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "ctxbroker/error.hpp"
#include "graph/job_changes.hpp"
#include "graph/job_check.hpp"
#include "worker/grouped_graph.hpp"

namespace ctxbroker::detail {
namespace {

using Clock = std::chrono::steady_clock;

Rectangle frame_of(const JobInfo& job) noexcept {
  return {0, 0, job.width, job.height};
}

bool is_part(const JobInfo& job) noexcept {
  return job.region.width != 0 || !job.extents.empty();
}

// Returns the part that the host gets of each picture.
Rectangle wanted_of(const JobInfo& job) noexcept {
  return job.region.width != 0 ? rectangle(job.region) : frame_of(job);
}

// Throws unless the region that a process returned is in range.
void check_region(const Rectangle& one, const std::string& what) {
  if (is_valid(one)) return;
  throw Error(ErrorKind::plugin_failed,
              "graph: the answer for " + what + ", " + to_text(one) + ", is out of range");
}

// Returns the nanoseconds that are left of the job's time. 0: the job has no deadline. 1: no time
// is left.
std::uint64_t time_left(const JobInfo& job, Clock::time_point begin) {
  if (job.deadline_ns == 0) return 0;
  const auto passed =
      static_cast<std::uint64_t>((Clock::now() - begin) / std::chrono::nanoseconds(1));
  return passed < job.deadline_ns ? job.deadline_ns - passed : 1;
}

// Returns the outcome of the whole job. It is dry if one of the processes had the dry signal.
JobOutcome as_a_whole(JobOutcome of_last, bool is_dry) noexcept {
  const bool is_there = of_last == JobOutcome::done || of_last == JobOutcome::late;
  return is_dry && is_there ? JobOutcome::dry : of_last;
}

std::uint32_t rows_of(const Format& format, const JobInfo& job) noexcept {
  return format.channels != 0 ? format.channels : job.height;
}

}  // namespace

bool GroupedGraph::is_image(Index value) const noexcept {
  return wiring_.media == Media::image && wiring_.values[value].format.result_bytes == 0;
}

void GroupedGraph::get_ready() {
  for (Index g = 0; g < segments_.size(); ++g) {
    asked_last_ = g;
    if (!segments_[g]->get_ready() && has_dry_pictures_) left_out_[g] = true;
    pass_relays(g, 0);
  }
  is_dry_ = std::count(left_out_.begin(), left_out_.end(), true) != 0;
}

// With dry_while_away, a process that ends meanwhile is left out, and the work begins anew. A job
// in flight there is lost, and the host has to hear of it.
template <typename Work>
auto GroupedGraph::without_ended(const JobBuffers& buffers, const JobInfo& job, const Work& work) {
  // A process that is back since has not said what it needs.
  const bool was_told = is_part(job) && asks_the_same(job, regions_of_);
  left_out_.assign(segments_.size(), false);
  if (was_told) left_out_ = left_out_there_;
  const bool can_begin_anew = has_dry_pictures_ && !segments_.back()->has_jobs() &&
                              !is_any_lent(*segments_.front(), buffers.inputs);
  for (;;) {
    try {
      return work();
    } catch (const Error& error) {
      const bool is_away = error.kind() == ErrorKind::context_lost && !groups_[asked_last_].in_host;
      if (!can_begin_anew || !is_away || left_out_[asked_last_]) throw;
    }
    left_out_[asked_last_] = true;
  }
}

// Before any process sees the job, so that a refused one changes nothing.
void GroupedGraph::check(const JobBuffers& buffers, const JobInfo& job,
                         const WorkerJobEvents& events) const {
  check_active();
  check_job(wiring_, sizes_, buffers, job);
  check_events(wiring_.media, events.changes.size(), most_changes_, events.transport);
  std::int64_t before = INT64_MIN;
  for (const WorkerParameterChange& change : events.changes) {
    const Place at = place(change.node);
    check_change(
        {nullptr, change.parameter, change.offset, change.value, change.ramp_frames, change.from},
        at.part.description(at.node), job.width);
    check_order(before, change.offset);
    before = change.offset;
  }
}

// Prepares what each process gets with its job, except for the regions.
void GroupedGraph::prepare(const JobInfo& job, const WorkerJobEvents& events) {
  for (Index n = 0; n < steps_.size(); ++n) {
    Step& step = steps_[n];
    const WiredNode& node = wiring_.nodes[n];
    step.job.width = job.width;
    step.job.height = job.height;
    step.job.position = job.position + node.frame;
    step.job.sample_rate = job.sample_rate;
    step.job.discontinuity = job.discontinuity || node.is_repeated;
    step.job.region = {};
    step.job.extents.clear();
    step.events.changes.clear();
    step.events.transport = events.transport;
    for (const WorkerParameterChange& change : events.changes) {
      if (place_[change.node].first != node.origin) continue;
      step.events.changes.push_back(change);
      step.events.changes.back().node = place_[change.node].second;
    }
  }
}

// Finds the extents of all pictures, from the host's inputs on.
void GroupedGraph::find_extents(const JobInfo& job) {
  for (Index v = 0; v < job_inputs_.size(); ++v) {
    samples_[v].extent =
        job.extents.empty() ? frame_of(job) : rectangle(job.extents[job_inputs_[v].input]);
    if (is_valid(samples_[v].extent)) continue;
    refuse_job("the extent of the input \"" + wiring_.values[v].name + "\", " +
               to_text(samples_[v].extent) + ", is empty or out of range");
  }
  for (Index n = 0; n < steps_.size(); ++n) {
    const WiredNode& node = wiring_.nodes[n];
    JobInfo& own = steps_[n].job;
    own.extents.assign(node.plugin->inputs.size(), {});
    for (Index feed = 0; feed < node.feeds.size(); ++feed) {
      const Rectangle extent = samples_[*node.inputs[feed]].extent;
      ImageRegion& known = own.extents[node.feeds[feed].port];
      if (known.width != 0 && !equal(rectangle(known), extent)) {
        refuse_job("the frames that " + node.name + " reads differ in extent: " +
                   to_text(rectangle(known)) + ", and " + to_text(extent));
      }
      known = image_region(extent);
    }
    if (left_out_[node.origin]) {
      find_dry_extents(node, job);
      continue;
    }
    const std::vector<ImageRegion> extents = ask_segment(node).output_extents(own);
    for (std::size_t port = 0; port < node.outputs.size(); ++port) {
      const Index value = node.outputs[port];
      if (!is_image(value)) continue;
      samples_[value].extent = rectangle(extents[port]);
      check_region(samples_[value].extent, wiring_.values[value].name);
    }
  }
}

// Finds the part of each picture that is needed, from the host's outputs back. Call it after
// find_extents.
void GroupedGraph::find_regions(const JobInfo& job) {
  if (!is_valid(wanted_of(job))) {
    refuse_job("the job's region, " + to_text(wanted_of(job)) + ", is out of range");
  }
  for (Samples& one : samples_) one.wanted = {};
  for (const Index value : wiring_.outputs) {
    if (is_image(value)) samples_[value].wanted = around(samples_[value].wanted, wanted_of(job));
  }
  for (Index n = steps_.size(); n-- > 0;) {
    Step& step = steps_[n];
    const WiredNode& node = wiring_.nodes[n];
    if (left_out_[node.origin]) {
      find_dry_regions(node);
      continue;
    }
    Rectangle region{};  // one for all outputs
    for (const Index value : node.outputs) region = around(region, samples_[value].wanted);
    // Without a process before, the pictures may be smaller than the host has been told.
    for (const Index value : node.outputs) {
      if (is_dry_ && is_image(value)) region = common(region, samples_[value].extent);
    }
    for (const Index value : node.outputs) {
      if (!is_image(value)) continue;
      const Rectangle& extent = samples_[value].extent;
      // It is made all the same, although nobody reads it, or nothing of it can be had.
      if (is_empty(region)) region = is_dry_ ? Rectangle{extent.x, extent.y, 1, 1} : extent;
      samples_[value].region = region;
      if (contains(extent, region)) continue;
      refuse_job("the job needs " + to_text(region) + " of each output of the process of " +
                 node.name + ", and " + wiring_.values[value].name + " has " + to_text(extent) +
                 (node.outputs.size() == 1 ? "" : "; use another WorkerGrouping"));
    }
    step.job.region = image_region(region);
    const std::vector<ImageRegion> needs = ask_segment(node).input_regions(step.job);
    for (std::size_t i = 0; i < step.feeds.size(); ++i) {
      step.needs[i] = rectangle(needs[i]);
      Rectangle& wanted = samples_[*node.inputs[step.feeds[i]]].wanted;
      if (is_empty(step.needs[i])) continue;
      check_region(step.needs[i], "an input of " + node.name);
      wanted = around(wanted, step.needs[i]);
    }
  }
  // A host that says nothing about parts has whole pictures.
  for (Index v = 0; v < job_inputs_.size(); ++v) {
    samples_[v].region = is_part(job) ? samples_[v].wanted : samples_[v].extent;
  }
}

// The host's buffers have the sizes that input_regions gave. If a process has ended since, the job
// may need other pixels. Those that are missing are transparent.
void GroupedGraph::check_returned_regions(const JobInfo& job) {
  if (!is_part(job)) return;
  if (!asks_the_same(job, regions_of_) || regions_.size() != job_inputs_.size()) {
    refuse_job("the job has a region or extents; call input_regions for it right before");
  }
  for (Index v = 0; v < job_inputs_.size(); ++v) {
    if (is_dry_) samples_[v].region = rectangle(regions_[v]);
    if (is_dry_ || equal(rectangle(regions_[v]), samples_[v].wanted)) continue;
    throw Error(ErrorKind::plugin_failed, "graph: the job needs " + to_text(samples_[v].wanted) +
                                              " of " + wiring_.values[v].name +
                                              ", and input_regions said " +
                                              to_text(rectangle(regions_[v])) + "; ask again");
  }
}

void GroupedGraph::check_same_regions(Index n) {
  const Step& step = steps_[n];
  const std::vector<ImageRegion> needs = ask_segment(wiring_.nodes[n]).input_regions(step.job);
  for (std::size_t i = 0; i < step.feeds.size(); ++i) {
    if (equal(rectangle(needs[i]), step.needs[i])) continue;
    throw Error(ErrorKind::plugin_failed,
                "graph: " + wiring_.nodes[n].name + " has answered the same question in two ways");
  }
}

// Returns what a process reads: the samples themselves, a part of them, or what was there earlier.
const void* GroupedGraph::input_of(Index n, std::size_t input) {
  Step& step = steps_[n];
  const Index value = *wiring_.nodes[n].inputs[step.feeds[input]];
  const Samples& from = samples_[value];
  const Format& format = wiring_.values[value].format;
  std::vector<std::byte>& own = step.parts[input];
  if (wiring_.media == Media::audio) {
    std::optional<HostDelayLine>& line = step.lines[input];
    if (!line) return from.data;
    auto* const delayed = reinterpret_cast<float*>(own.data());
    line->add(static_cast<const float*>(from.data), step.job.width, rows_of(format, step.job));
    line->give(delayed);
    return delayed;
  }
  const Rectangle& need = step.needs[input];
  if (is_empty(need) || equal(need, from.region)) return from.data;
  if (!contains(from.region, need) && !(is_dry_ && fits(need))) {
    throw Error(ErrorKind::plugin_failed, "graph: " + wiring_.nodes[n].name + " needs " +
                                              to_text(need) + " of " + wiring_.values[value].name +
                                              ", and there are " + to_text(from.region));
  }
  const std::uint64_t bytes = row_bytes(format, need.width) * need.height;
  if (own.size() < bytes) own.resize(bytes);
  cut_out(own.data(), need, from.data, from.region, format);
  return own.data();
}

// The last process can write into the host's buffer. Another one cannot, because an input of the
// host's that is still needed may lie there.
void* GroupedGraph::output_of(Index value, bool is_last, const JobBuffers& host,
                              const JobInfo& job) {
  for (std::size_t port = 0; is_last && port < wiring_.outputs.size(); ++port) {
    const bool is_ready = wiring_.outputs[port] == value && !output_lines_[port] &&
                          (!is_image(value) || equal(samples_[value].region, wanted_of(job)));
    if (is_ready) return host.outputs[port];
  }
  return samples_[value].room();
}

void GroupedGraph::give_outputs(const JobBuffers& host, const JobInfo& job) {
  for (std::size_t port = 0; port < wiring_.outputs.size(); ++port) {
    const Index value = wiring_.outputs[port];
    const Format& format = wiring_.values[value].format;
    const Samples& from = samples_[value];
    void* const to = host.outputs[port];
    if (output_lines_[port]) {
      output_lines_[port]->add(static_cast<const float*>(from.data), job.width,
                               rows_of(format, job));
      output_lines_[port]->give(static_cast<float*>(to));
    } else if (to == from.data) {
      continue;
    } else if (is_image(value)) {
      cut_out(to, wanted_of(job), from.data, from.region, format);
    } else {
      std::memcpy(to, from.data, bytes_of(format, job.width, job.height));
    }
  }
}

// `last` runs the last process, and returns when its outputs are complete unless all of them go
// straight to the host.
template <typename Last>
auto GroupedGraph::run(const JobBuffers& buffers, const JobInfo& job, const WorkerJobEvents& events,
                       const Last& last) {
  const auto begin = Clock::now();
  check(buffers, job, events);
  // A relay that the jobs of the last process read is about to be written anew.
  if (last_reads_relay_ && segments_.back()->has_jobs()) segments_.back()->finish(last_submitted_);
  get_ready();  // a plug-in can have another latency now
  prepare(job, events);
  if (wiring_.media == Media::image) {
    find_extents(job);
    find_regions(job);
    check_returned_regions(job);
  } else {
    keep_aligned();
    if (job.discontinuity || goes_on_with_ != job.height) start_lines_anew();
  }
  goes_on_with_.reset();
  for (Index v = 0; v < job_inputs_.size(); ++v) samples_[v].data = buffers.inputs[v];
  try {
    for (Index n = 0;; ++n) {
      Step& step = steps_[n];
      const WiredNode& node = wiring_.nodes[n];
      const bool is_last = n + 1 == steps_.size(), is_left_out = left_out_[node.origin];
      bool is_direct = is_last;
      asked_last_ = node.origin;
      step.buffers.inputs.clear();
      step.buffers.outputs.clear();
      for (std::size_t i = 0; i < step.feeds.size() && !is_left_out; ++i) {
        step.buffers.inputs.push_back(input_of(n, i));
      }
      for (const Index value : node.outputs) {
        void* const to = output_of(value, is_last && !is_left_out, buffers, job);
        step.buffers.outputs.push_back(to);
        samples_[value].data = to;
        const auto uses = std::count(wiring_.outputs.begin(), wiring_.outputs.end(), value);
        is_direct = is_direct && to != samples_[value].room() && uses == 1;
      }
      if (is_left_out) {
        make_dry(node);
      } else if (wiring_.media == Media::image) {
        // It may have answered for another frame since, or have started again.
        check_same_regions(n);
      }
      step.job.deadline_ns = time_left(job, begin);
      if (is_last) {
        const auto result = last(step.buffers, step.job, step.events, is_direct);
        give_outputs(buffers, job);
        goes_on_with_ = job.height;
        return result;
      }
      GraphSegment& one = ask_segment(node);
      const JobOutcome outcome = is_left_out ? one.finish(one.skip_job())
                                             : one.process(step.buffers, step.job, step.events);
      pass_relays(node.origin, n);  // it may have started again
      is_dry_ = is_dry_ || outcome == JobOutcome::dry;
    }
  } catch (...) {
    lose_step();  // some have had the job, and others not
    throw;
  }
}

void GroupedGraph::start_lines_anew() noexcept {
  for (Step& step : steps_) {
    for (auto& line : step.lines) {
      if (line) line->start_anew();
    }
  }
  for (auto& line : output_lines_) {
    if (line) line->start_anew();
  }
}

std::uint64_t GroupedGraph::submit(const JobBuffers& buffers, const JobInfo& job,
                                   const WorkerJobEvents& events) {
  GraphSegment& last = *segments_.back();
  if (is_whole()) return last.submit(buffers, job, events);
  const auto submit_last = [&](const JobBuffers& own, const JobInfo& info,
                               const WorkerJobEvents& its, bool is_direct) {
    const std::uint64_t number = last_submitted_ =
        left_out_.back() ? last.skip_job() : last.submit(own, info, its);
    // The last process does not know the blocks that the first one was lent.
    if (!is_direct || is_any_lent(*segments_.front(), buffers.outputs)) last.finish(number);
    dry_jobs_[number % dry_jobs_.size()] = is_dry_ ? number : 0;
    return number;
  };
  return without_ended(buffers, job, [&] { return run(buffers, job, events, submit_last); });
}

JobOutcome GroupedGraph::process(const JobBuffers& buffers, const JobInfo& job,
                                 const WorkerJobEvents& events) {
  GraphSegment& last = *segments_.back();
  if (is_whole()) return last.process(buffers, job, events);
  const auto process_last = [&](const JobBuffers& own, const JobInfo& info,
                                const WorkerJobEvents& its, bool) {
    const JobOutcome outcome =
        left_out_.back() ? last.finish(last.skip_job()) : last.process(own, info, its);
    return as_a_whole(outcome, is_dry_);
  };
  const auto run_once = [&] {
    return without_ended(buffers, job, [&] { return run(buffers, job, events, process_last); });
  };
  // A block of sound is repeated by the one process that has lost it. A picture begins anew,
  // because each process gets it with a region.
  const bool can_begin_anew = wiring_.media == Media::image && !last.has_jobs() &&
                              !is_any_lent(*segments_.front(), buffers.inputs);
  try {
    return run_once();
  } catch (const Error& error) {
    if (!can_begin_anew || !segments_[asked_last_]->can_repeat(job, error)) throw;
  }
  return run_once();
}

JobOutcome GroupedGraph::process(const float* input, float* output, const JobInfo& job,
                                 const WorkerJobEvents& events) {
  one_.inputs.assign(1, input);
  one_.outputs.assign(1, output);
  return process(one_, job, events);
}

JobOutcome GroupedGraph::finish(std::uint64_t job) {
  try {
    const JobOutcome outcome = segments_.back()->finish(job);
    return as_a_whole(outcome, dry_jobs_[job % dry_jobs_.size()] == job);
  } catch (...) {
    if (!is_whole()) lose_step();
    throw;
  }
}

// The next job does not follow the last one.
void GroupedGraph::lose_step() noexcept {
  goes_on_with_.reset();
  mark_discontinuity();
}

std::vector<ImageRegion> GroupedGraph::output_extents(const JobInfo& job) {
  if (is_whole()) return segments_.front()->output_extents(job);
  check_image_query(job);
  without_ended({}, job, [&] {
    get_ready();
    prepare(job, {});
    find_extents(job);
  });
  std::vector<ImageRegion> extents;
  for (const Index value : wiring_.outputs) {
    extents.push_back(is_image(value) ? image_region(samples_[value].extent) : ImageRegion());
  }
  return extents;
}

std::vector<ImageRegion> GroupedGraph::input_regions(const JobInfo& job) {
  if (is_whole()) return segments_.front()->input_regions(job);
  check_image_query(job);
  regions_of_ = {};
  without_ended({}, job, [&] {
    get_ready();
    prepare(job, {});
    find_extents(job);
    find_regions(job);
  });
  left_out_there_ = left_out_;
  regions_.clear();
  for (Index v = 0; v < job_inputs_.size(); ++v) {
    regions_.push_back(image_region(samples_[v].region));
  }
  regions_of_ = job;
  return regions_;
}

void GroupedGraph::check_image_query(const JobInfo& job) const {
  check_active();
  if (wiring_.media != Media::image) refuse_job("audio has no regions");
  check_info(wiring_, job);
}

}  // namespace ctxbroker::detail
