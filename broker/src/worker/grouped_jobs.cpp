// SPDX-License-Identifier: Apache-2.0
// The jobs of a graph in several processes: one process after the other, through host memory.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "ctxbroker/error.hpp"
#include "worker/grouped_graph.hpp"

namespace ctxbroker::detail {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void refuse_job(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, "graph: " + why);
}

Rectangle frame_of(const JobInfo& job) noexcept {
  return {0, 0, job.width, job.height};
}

bool is_part(const JobInfo& job) noexcept {
  return job.region.width != 0 || !job.extents.empty();
}

// What the host gets of each picture.
Rectangle wanted_of(const JobInfo& job) noexcept {
  return job.region.width != 0 ? rectangle(job.region) : frame_of(job);
}

void must_be_sound(const Rectangle& one, const std::string& whose) {
  if (is_sound(one)) return;
  refuse_job(whose + ", " + to_text(one) + ", is empty or out of range");
}

// Copies `part`, which lies in `whole`, to memory without gaps.
void cut_out(void* to, const Rectangle& part, const void* from, const Rectangle& whole,
             const Format& format) {
  const std::uint64_t row = row_bytes(format, part.width), pitch = row_bytes(format, whole.width);
  const auto* source = static_cast<const std::byte*>(from) +
                       static_cast<std::uint64_t>(part.y - whole.y) * pitch +
                       row_bytes(format, static_cast<std::uint32_t>(part.x - whole.x));
  for (std::uint32_t y = 0; y < part.height; ++y, source += pitch) {
    std::memcpy(static_cast<std::byte*>(to) + y * row, source, row);
  }
}

// What is left of the job's time. 1 ns: nothing.
std::uint64_t time_left(const JobInfo& job, Clock::time_point begin) {
  if (job.deadline_ns == 0) return 0;
  const auto passed =
      static_cast<std::uint64_t>((Clock::now() - begin) / std::chrono::nanoseconds(1));
  return passed < job.deadline_ns ? job.deadline_ns - passed : 1;
}

std::uint32_t rows_of(const Format& format, const JobInfo& job) noexcept {
  return format.channels != 0 ? format.channels : job.height;
}

}  // namespace

bool GroupedGraph::is_image(Index value) const noexcept {
  return wiring_.media == Media::image && wiring_.values[value].format.result_bytes == 0;
}

// What a job has to be before any process sees it.
void GroupedGraph::check(const JobBuffers& buffers, const JobInfo& job,
                         const WorkerJobEvents& events) const {
  must_be_active();
  if (buffers.inputs.size() != job_inputs_.size() ||
      buffers.outputs.size() != wiring_.outputs.size()) {
    refuse_job("the job has " + std::to_string(buffers.inputs.size()) + " inputs and " +
               std::to_string(buffers.outputs.size()) + " outputs, and the graph needs " +
               std::to_string(job_inputs_.size()) + " and " +
               std::to_string(wiring_.outputs.size()));
  }
  const auto is_null = [](const void* buffer) { return buffer == nullptr; };
  if (std::any_of(buffers.inputs.begin(), buffers.inputs.end(), is_null) ||
      std::any_of(buffers.outputs.begin(), buffers.outputs.end(), is_null)) {
    refuse_job("a buffer of the job is null");
  }
  // Of a part, each process checks what it gets.
  if (!is_part(job) && (job.width > sizes_.max_width || job.height > sizes_.max_height)) {
    refuse_job("a job of " + std::to_string(job.width) + " x " + std::to_string(job.height) +
               " does not fit into " + std::to_string(sizes_.max_width) + " x " +
               std::to_string(sizes_.max_height) + ", the max_width and max_height of the graph");
  }
  if (events.changes.size() > most_changes_) {
    refuse_job("the job has " + std::to_string(events.changes.size()) +
               " changes, and the graph takes " + std::to_string(most_changes_) +
               " (GraphOptions::changes_per_job)");
  }
  for (const WorkerParameterChange& change : events.changes) {
    if (change.node < place_.size() &&
        change.parameter <
            place(change.node).client.description(place(change.node).node).parameters.size()) {
      continue;
    }
    refuse_job("a change is for a node or a parameter that there is not");
  }
}

// What each process gets with its job, without regions.
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

// Of all pictures, from the host's inputs on.
void GroupedGraph::find_extents(const JobInfo& job) {
  if (job.region.width != 0) must_be_sound(rectangle(job.region), "the job's region");
  for (Index v = 0; v < job_inputs_.size(); ++v) {
    const std::size_t input = job_inputs_[v].input;
    if (!job.extents.empty() && input >= job.extents.size()) {
      refuse_job("the job has " + std::to_string(job.extents.size()) +
                 " extents, and the graph has more inputs");
    }
    samples_[v].extent = job.extents.empty() ? frame_of(job) : rectangle(job.extents[input]);
    must_be_sound(samples_[v].extent, "the extent of the input \"" + wiring_.values[v].name + '"');
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
    const std::vector<ImageRegion> extents = client(node).output_extents(own);
    for (std::size_t end = 0; end < node.outputs.size(); ++end) {
      const Index value = node.outputs[end];
      if (value == unused || !is_image(value)) continue;
      samples_[value].extent = rectangle(extents[end]);
      must_be_sound(samples_[value].extent, "the extent of " + wiring_.values[value].name);
    }
  }
}

// Which part of each picture is needed, from the host's outputs back. After the extents.
void GroupedGraph::find_regions(const JobInfo& job) {
  for (Samples& one : samples_) one.wanted = {};
  for (const Index value : wiring_.outputs) {
    if (is_image(value)) samples_[value].wanted = around(samples_[value].wanted, wanted_of(job));
  }
  for (Index n = steps_.size(); n-- > 0;) {
    Step& step = steps_[n];
    const WiredNode& node = wiring_.nodes[n];
    Rectangle region{};  // one for all outputs
    bool makes_image = false;
    for (const Index value : node.outputs) {
      if (value == unused || !is_image(value)) continue;
      makes_image = true;
      region = around(region, samples_[value].wanted);
    }
    if (makes_image && is_empty(region)) region = wanted_of(job);  // it works all the same
    step.job.region = image_region(region);
    for (const Index value : node.outputs) {
      if (value != unused) samples_[value].region = region;
    }
    const std::vector<ImageRegion> needs = client(node).input_regions(step.job);
    for (std::size_t i = 0; i < step.feeds.size(); ++i) {
      step.needs[i] = rectangle(needs[i]);
      Rectangle& wanted = samples_[*node.inputs[step.feeds[i]]].wanted;
      if (is_empty(step.needs[i])) continue;
      must_be_sound(step.needs[i], "what " + node.name + " needs of an input");
      wanted = around(wanted, step.needs[i]);
    }
  }
  // A host that says nothing about parts has whole pictures.
  for (Index v = 0; v < job_inputs_.size(); ++v) {
    samples_[v].region = is_part(job) ? samples_[v].wanted : samples_[v].extent;
  }
}

// The host's buffers of a part are as long as it was told.
void GroupedGraph::must_be_as_told(const JobInfo& job) const {
  if (!is_part(job)) return;
  if (!asks_the_same(job, regions_of_) || regions_.size() != job_inputs_.size()) {
    refuse_job("the job has a region or extents; call input_regions for it right before");
  }
  for (Index v = 0; v < job_inputs_.size(); ++v) {
    if (equal(rectangle(regions_[v]), samples_[v].wanted)) continue;
    throw Error(ErrorKind::plugin_failed, "graph: the job needs " + to_text(samples_[v].wanted) +
                                              " of " + wiring_.values[v].name +
                                              ", and input_regions said " +
                                              to_text(rectangle(regions_[v])) + "; ask again");
  }
}

void GroupedGraph::must_need_the_same(Index n) {
  const Step& step = steps_[n];
  const std::vector<ImageRegion> needs = client(wiring_.nodes[n]).input_regions(step.job);
  for (std::size_t i = 0; i < step.feeds.size(); ++i) {
    if (equal(rectangle(needs[i]), step.needs[i])) continue;
    throw Error(ErrorKind::plugin_failed,
                "graph: " + wiring_.nodes[n].name + " has answered the same question in two ways");
  }
}

// What a process reads: the samples themselves, a part of them, or what was there earlier.
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
  if (!contains(from.region, need)) {
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
  for (std::size_t end = 0; is_last && end < wiring_.outputs.size(); ++end) {
    const bool is_ready = wiring_.outputs[end] == value && !output_lines_[end] &&
                          (!is_image(value) || equal(samples_[value].region, wanted_of(job)));
    if (is_ready) return host.outputs[end];
  }
  return samples_[value].storage.data();
}

void GroupedGraph::give_outputs(const JobBuffers& host, const JobInfo& job) {
  for (std::size_t end = 0; end < wiring_.outputs.size(); ++end) {
    const Index value = wiring_.outputs[end];
    const Format& format = wiring_.values[value].format;
    const Samples& from = samples_[value];
    void* const to = host.outputs[end];
    if (output_lines_[end]) {
      output_lines_[end]->add(static_cast<const float*>(from.data), job.width,
                              rows_of(format, job));
      output_lines_[end]->give(static_cast<float*>(to));
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
  prepare(job, events);
  if (wiring_.media == Media::image) {
    find_extents(job);
    find_regions(job);
    must_be_as_told(job);
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
      const bool is_last = n + 1 == steps_.size();
      bool is_direct = is_last;
      asked_last_ = node.origin;
      step.buffers.inputs.clear();
      step.buffers.outputs.clear();
      for (std::size_t i = 0; i < step.feeds.size(); ++i) {
        step.buffers.inputs.push_back(input_of(n, i));
      }
      for (const Index value : node.outputs) {
        void* const to =
            value == unused ? step.nobodys.data() : output_of(value, is_last, buffers, job);
        step.buffers.outputs.push_back(to);
        if (value == unused) continue;
        samples_[value].data = to;
        const auto ends = std::count(wiring_.outputs.begin(), wiring_.outputs.end(), value);
        is_direct = is_direct && to != samples_[value].storage.data() && ends == 1;
      }
      // The process has answered for another frame since.
      if (step.is_repeated) must_need_the_same(n);
      step.job.deadline_ns = time_left(job, begin);
      if (is_last) {
        const auto result = last(step.buffers, step.job, step.events, is_direct);
        give_outputs(buffers, job);
        goes_on_with_ = job.height;
        return result;
      }
      client(node).process(step.buffers, step.job, step.events);
    }
  } catch (...) {
    mark_discontinuity();  // some have had the job, and others not
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
  GraphClient& last = *clients_.back();
  if (is_whole()) return last.submit(buffers, job, events);
  return run(
      buffers, job, events,
      [&](const JobBuffers& own, const JobInfo& info, const WorkerJobEvents& its, bool is_direct) {
        const std::uint64_t number = last.submit(own, info, its);
        if (!is_direct) last.finish(number);
        return number;
      });
}

JobOutcome GroupedGraph::process(const JobBuffers& buffers, const JobInfo& job,
                                 const WorkerJobEvents& events) {
  GraphClient& last = *clients_.back();
  if (is_whole()) return last.process(buffers, job, events);
  const auto run_once = [&] {
    return run(buffers, job, events,
               [&](const JobBuffers& own, const JobInfo& info, const WorkerJobEvents& its, bool) {
                 return last.process(own, info, its);
               });
  };
  // A block of sound is repeated by the one process that has lost it. A picture begins anew,
  // because each process gets it with a region.
  if (wiring_.media == Media::audio) return run_once();
  try {
    return run_once();
  } catch (const Error& error) {
    if (!clients_[asked_last_]->can_repeat(buffers, job, error)) throw;
  }
  return run_once();
}

std::vector<ImageRegion> GroupedGraph::output_extents(const JobInfo& job) {
  if (is_whole()) return clients_.front()->output_extents(job);
  must_ask_images();
  prepare(job, {});
  find_extents(job);
  std::vector<ImageRegion> extents;
  for (const Index value : wiring_.outputs) {
    extents.push_back(is_image(value) ? image_region(samples_[value].extent) : ImageRegion());
  }
  return extents;
}

std::vector<ImageRegion> GroupedGraph::input_regions(const JobInfo& job) {
  if (is_whole()) return clients_.front()->input_regions(job);
  must_ask_images();
  prepare(job, {});
  find_extents(job);
  find_regions(job);
  regions_.clear();
  for (Index v = 0; v < job_inputs_.size(); ++v) {
    regions_.push_back(image_region(samples_[v].region));
  }
  regions_of_ = job;
  return regions_;
}

void GroupedGraph::must_ask_images() const {
  must_be_active();
  if (wiring_.media != Media::image) refuse_job("audio has no regions");
}

}  // namespace ctxbroker::detail
