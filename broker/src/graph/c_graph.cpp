// SPDX-License-Identifier: Apache-2.0
// host_graph.h.
#include <algorithm>
#include <utility>

#include "ctxbroker/graph.hpp"
#include "plugin/c_host.hpp"

struct ctxb_graph {
  ctxbroker::Graph graph;
  std::vector<ctxb_instance*> instances;  // of its nodes
  ctxb_tenant* tenant;                    // of its ports on the device; may be null
  std::uint32_t changes_per_job;
  ctxbroker::JobBuffers buffers;  // of one job; as many as the graph has ends
  ctxbroker::JobEvents events;    // of one job; with room for the changes
};

namespace {

using ctxbroker::Error;
using ctxbroker::ErrorKind;
using ctxbroker::GraphDescription;
using ctxbroker::GraphPort;
using ctxbroker::JobOutcome;
using ctxbroker::LateJobs;
using ctxbroker::detail::answered;
using ctxbroker::detail::check_argument;
using ctxbroker::detail::code;
using ctxbroker::detail::read_flag;
using ctxbroker::detail::taken;

constexpr std::uint32_t most_elements = 65536;  // of an array; a larger count is garbage

// Calls `read` with each element of the caller's array.
template <typename Struct, typename Read>
void read_all(const Struct* first, std::uint32_t count, const char* complaint, Read&& read) {
  if (count == 0) return;
  check_argument(count <= most_elements && ctxbroker::detail::has_size(first) &&
                     ctxbroker::detail::is_step(first),
                 complaint);
  for (std::uint32_t index = 0; index < count; ++index) {
    const Struct* const given = ctxbroker::detail::element(first, index);
    check_argument(given->size == first->size, complaint);
    read(taken(given, complaint));
  }
}

std::string name_of(const char* name) {
  check_argument(name != nullptr, "a name in the graph's description is null");
  return name;
}

GraphPort read_port(const ctxb_graph_port& given) {
  const auto samples = given.samples == 0 ? ctxbroker::SampleType::float32
                                          : static_cast<ctxbroker::SampleType>(given.samples);
  return {name_of(given.name), given.channels, samples, read_flag(given.on_device, "on_device")};
}

// A description in the library's types, and the handles that it names.
struct Described {
  GraphDescription graph;
  std::vector<ctxb_instance*> instances;
  ctxb_tenant* tenant = nullptr;
};

Described read(const ctxb_graph_description* description) {
  const ctxb_graph_description given =
      taken(description, "description is null, or its size is not sizeof(ctxb_graph_description)");
  Described made;
  GraphDescription& graph = made.graph;
  read_all(given.inputs, given.input_count,
           "inputs is null or too long, or inputs[].size is not sizeof(ctxb_graph_port)",
           [&](const ctxb_graph_port& port) { graph.inputs.push_back(read_port(port)); });
  read_all(given.outputs, given.output_count,
           "outputs is null or too long, or outputs[].size is not sizeof(ctxb_graph_port)",
           [&](const ctxb_graph_port& port) { graph.outputs.push_back(read_port(port)); });
  read_all(given.nodes, given.node_count,
           "nodes is null or too long, or nodes[].size is not sizeof(ctxb_graph_node)",
           [&](const ctxb_graph_node& node) {
             check_argument(node.reserved == 0, "reserved of a ctxb_graph_node is not 0");
             graph.nodes.push_back({name_of(node.name),
                                    node.instance == nullptr ? nullptr : &node.instance->instance});
             made.instances.push_back(node.instance);
           });
  read_all(given.edges, given.edge_count,
           "edges is null or too long, or edges[].size is not sizeof(ctxb_graph_edge)",
           [&](const ctxb_graph_edge& edge) {
             check_argument(edge.reserved == 0, "reserved of a ctxb_graph_edge is not 0");
             graph.edges.push_back({name_of(edge.from), name_of(edge.to)});
           });
  check_argument(given.device == 0 || given.tenant != nullptr,
                 "device is given, but there is no tenant whose memory is there");
  graph.device = given.device;
  made.tenant = given.tenant;
  if (given.tenant != nullptr) graph.tenant = &given.tenant->tenant;
  return made;
}

static_assert(code(LateJobs::deliver) == CTXB_LATE_DELIVER &&
              code(LateJobs::dry) == CTXB_LATE_DRY && code(LateJobs::drop) == CTXB_LATE_DROP);

LateJobs read_late(std::uint32_t late) {
  if (late <= CTXB_LATE_DROP) return static_cast<LateJobs>(late);
  throw Error(ErrorKind::invalid_argument,
              "late is " + std::to_string(late) + "; use CTXB_LATE_DELIVER, _DRY or _DROP");
}

ctxbroker::GraphOptions read(const ctxb_graph_options* options) {
  ctxbroker::GraphOptions wanted;
  if (options == nullptr) return wanted;
  const ctxb_graph_options given =
      taken(options, "the options' size is not sizeof(ctxb_graph_options)");
  if (given.jobs_in_flight != 0) wanted.jobs_in_flight = given.jobs_in_flight;
  wanted.measure = read_flag(given.measure, "measure");
  wanted.name_faults = !read_flag(given.without_marks, "without_marks");
  wanted.late = read_late(given.late);
  if (given.changes_per_job != 0) wanted.changes_per_job = given.changes_per_job;
  check_argument(given.reserved == 0, "reserved of the ctxb_graph_options is not 0");
  wanted.jobs_waiting = given.jobs_waiting;
  if (given.on_done != nullptr) {
    wanted.on_done = [tell = given.on_done, data = given.on_done_data](std::uint64_t job) {
      tell(data, job);
    };
  }
  return wanted;
}

static_assert(code(JobOutcome::done) == CTXB_OUTCOME_DONE &&
              code(JobOutcome::late) == CTXB_OUTCOME_LATE &&
              code(JobOutcome::dry) == CTXB_OUTCOME_DRY &&
              code(JobOutcome::dropped) == CTXB_OUTCOME_DROPPED &&
              code(JobOutcome::forgotten) == CTXB_OUTCOME_FORGOTTEN &&
              code(JobOutcome::cancelled) == CTXB_OUTCOME_CANCELLED);

// Copies pointers into a vector that has room for them already: jobs do not allocate.
template <typename Pointer>
void take(Pointer const* given, std::uint32_t count, std::vector<Pointer>& target,
          const char* what) {
  if (count != target.size()) {
    throw Error(ErrorKind::invalid_argument, "the job has " + std::to_string(count) + ' ' + what +
                                                 "; the graph has " +
                                                 std::to_string(target.size()));
  }
  if (count == 0) return;
  if (given == nullptr) throw Error(ErrorKind::invalid_argument, std::string(what) + " is null");
  std::copy_n(given, count, target.begin());
}

const ctxbroker::JobBuffers& read(ctxb_graph& graph, const ctxb_job_buffers* buffers) {
  const ctxb_job_buffers given =
      taken(buffers, "buffers is null, or its size is not sizeof(ctxb_job_buffers)");
  check_argument(given.reserved == 0, "reserved of the ctxb_job_buffers is not 0");
  take(given.inputs, given.input_count, graph.buffers.inputs, "inputs");
  take(given.outputs, given.output_count, graph.buffers.outputs, "outputs");
  graph.buffers.after = static_cast<CUstream>(given.after);
  return graph.buffers;
}

ctxbroker::ParameterChange read(const ctxb_parameter_change& given) {
  check_argument(given.reserved == 0, "reserved of a ctxb_parameter_change is not 0");
  check_argument(given.ramp_frames != 0 || given.from == 0,
                 "from of a change that is no ramp is not 0");
  return {given.instance == nullptr ? nullptr : &given.instance->instance,
          given.parameter,
          given.offset,
          given.value,
          given.ramp_frames,
          given.from};
}

ctxbroker::Transport read(const ctxb_transport& given) {
  constexpr std::uint32_t known = (CTXB_TRANSPORT_SECONDS << 1U) - 1;
  check_argument((given.flags & ~known) == 0, "the flags of the ctxb_transport are not known");
  const auto has = [&](std::uint32_t flag) { return (given.flags & flag) != 0; };
  ctxbroker::Transport song;
  song.playing = has(CTXB_TRANSPORT_PLAYING);
  song.recording = has(CTXB_TRANSPORT_RECORDING);
  song.looping = has(CTXB_TRANSPORT_LOOPING);
  if (has(CTXB_TRANSPORT_TEMPO)) {
    song.tempo = given.tempo;
    song.tempo_step = given.tempo_step;
  }
  if (has(CTXB_TRANSPORT_TIME_SIGNATURE)) {
    song.time_signature = {given.beats_per_bar, given.beat_unit};
  }
  if (has(CTXB_TRANSPORT_BEATS)) {
    song.beats = {given.song_beats,
                  given.bar_beats,
                  given.bar,
                  {given.loop_begin_beats, given.loop_end_beats}};
  }
  if (has(CTXB_TRANSPORT_SECONDS)) {
    song.seconds = {given.song_seconds, {given.loop_begin_seconds, given.loop_end_seconds}};
  }
  return song;
}

// Into the graph's own, which have room for all changes.
void read_events(ctxb_graph& graph, const ctxb_job_events* all) {
  ctxbroker::JobEvents& events = graph.events;
  events.changes.clear();
  events.transport.reset();
  if (all == nullptr) return;
  const ctxb_job_events given = taken(all, "the size of the events is not sizeof(ctxb_job_events)");
  if (given.change_count > graph.changes_per_job) {
    throw Error(ErrorKind::invalid_argument,
                "the job has " + std::to_string(given.change_count) + " changes; at most " +
                    std::to_string(graph.changes_per_job) + " are allowed");
  }
  read_all(given.changes, given.change_count,
           "changes is null, or changes[].size is not sizeof(ctxb_parameter_change)",
           [&](const ctxb_parameter_change& change) { events.changes.push_back(read(change)); });
  if (given.transport != nullptr) {
    events.transport =
        read(taken(given.transport, "the transport's size is not sizeof(ctxb_transport)"));
  }
}

ctxbroker::ImageRegion read(const ctxb_rectangle& given) noexcept {
  return {given.x, given.y, given.width, given.height};
}

// Reads the caller's job, and puts its events into `graph`.
ctxbroker::JobInfo read(ctxb_graph& graph, const ctxb_job_info* info) {
  const ctxb_job_info given = taken(info, "info is null, or its size is not sizeof(ctxb_job_info)");
  read_events(graph, given.events);
  ctxbroker::JobInfo job;
  job.width = given.width;
  job.height = given.height;
  job.position = given.position;
  job.sample_rate = given.sample_rate;
  job.deadline_ns = given.deadline_ns;
  job.discontinuity = read_flag(given.discontinuity, "discontinuity");
  job.region = read(given.region);
  check_argument(given.reserved == 0, "reserved of the ctxb_job_info is not 0");
  check_argument(given.extent_count == 0 || given.extents != nullptr, "extents is null");
  check_argument(given.extent_count <= most_elements, "extent_count is too large");
  for (std::uint32_t i = 0; i < given.extent_count; ++i) {
    job.extents.push_back(read(given.extents[i]));
  }
  return job;
}

// Copies answers of a graph to the caller's array.
void give(const std::vector<ctxbroker::ImageRegion>& answers, std::uint32_t count,
          ctxb_rectangle* target) {
  if (count != answers.size()) {
    throw Error(
        ErrorKind::invalid_argument,
        "count is " + std::to_string(count) + ", and there are " + std::to_string(answers.size()));
  }
  std::transform(answers.begin(), answers.end(), target, [](const ctxbroker::ImageRegion& one) {
    return ctxb_rectangle{one.x, one.y, one.width, one.height};
  });
}

}  // namespace

ctxb_status ctxb_graph_create(ctxb_broker* broker, const ctxb_graph_description* description,
                              const ctxb_activation_sizes* sizes, const ctxb_graph_options* options,
                              ctxb_graph** graph) {
  if (graph != nullptr) *graph = nullptr;
  return answered(broker != nullptr && graph != nullptr, "broker or graph is null", [&] {
    Described wanted = read(description);
    const ctxbroker::GraphOptions given = read(options);
    auto made = std::make_unique<ctxb_graph>(ctxb_graph{
        ctxbroker::Graph(broker->broker, wanted.graph, ctxbroker::detail::read(sizes), given),
        std::move(wanted.instances),
        wanted.tenant,
        given.changes_per_job,
        {},
        {}});
    made->buffers.inputs.resize(made->graph.job_inputs().size());
    made->buffers.outputs.resize(wanted.graph.outputs.size());
    made->events.changes.reserve(given.changes_per_job);
    for (ctxb_instance* const instance : made->instances) ++instance->uses;
    if (made->tenant != nullptr) ++made->tenant->uses;
    *graph = made.release();
  });
}

ctxb_status ctxb_graph_destroy(ctxb_graph* graph) {
  return answered(graph != nullptr, "graph is null", [&] {
    for (ctxb_instance* const instance : graph->instances) --instance->uses;
    if (graph->tenant != nullptr) --graph->tenant->uses;
    delete graph;
  });
}

ctxb_status ctxb_graph_submit(ctxb_graph* graph, const ctxb_job_buffers* buffers,
                              const ctxb_job_info* info, uint64_t* job) {
  if (job != nullptr) *job = 0;
  return answered(graph != nullptr && job != nullptr, "graph or job is null", [&] {
    const ctxbroker::JobInfo given = read(*graph, info);
    *job = graph->graph.submit(read(*graph, buffers), given, graph->events);
  });
}

ctxb_status ctxb_graph_finish(ctxb_graph* graph, uint64_t job, uint32_t* outcome) {
  if (outcome != nullptr) *outcome = 0;
  return answered(graph != nullptr, "graph is null", [&] {
    const JobOutcome how = graph->graph.finish(job);
    if (outcome != nullptr) *outcome = code(how);
  });
}

ctxb_status ctxb_graph_is_done(ctxb_graph* graph, uint64_t job, uint32_t* done) {
  if (done != nullptr) *done = 0;
  return answered(graph != nullptr && done != nullptr, "graph or done is null",
                  [&] { *done = graph->graph.is_done(job) ? 1 : 0; });
}

ctxb_status ctxb_graph_cancel(ctxb_graph* graph, uint64_t job, uint32_t* cancelled) {
  if (cancelled != nullptr) *cancelled = 0;
  return answered(graph != nullptr, "graph is null", [&] {
    const bool was_waiting = graph->graph.cancel(job);
    if (cancelled != nullptr) *cancelled = was_waiting ? 1 : 0;
  });
}

ctxb_status ctxb_graph_follow(ctxb_graph* graph, uint64_t job, void* stream) {
  return answered(graph != nullptr, "graph is null",
                  [&] { graph->graph.follow(job, static_cast<CUstream>(stream)); });
}

ctxb_status ctxb_graph_process(ctxb_graph* graph, const ctxb_job_buffers* buffers,
                               const ctxb_job_info* info, uint32_t* outcome) {
  if (outcome != nullptr) *outcome = 0;
  return answered(graph != nullptr, "graph is null", [&] {
    const ctxbroker::JobInfo given = read(*graph, info);
    const JobOutcome how = graph->graph.process(read(*graph, buffers), given, graph->events);
    if (outcome != nullptr) *outcome = code(how);
  });
}

uint32_t ctxb_graph_job_input_count(const ctxb_graph* graph) {
  return graph == nullptr ? 0 : static_cast<uint32_t>(graph->graph.job_inputs().size());
}

ctxb_status ctxb_graph_job_input(const ctxb_graph* graph, uint32_t index, ctxb_job_input* input) {
  return answered(graph != nullptr, "graph is null", [&] {
    const std::vector<ctxbroker::JobInput>& inputs = graph->graph.job_inputs();
    check_argument(index < inputs.size(), "the job has no input of that number");
    const ctxb_job_input found{0, static_cast<uint32_t>(inputs[index].input), inputs[index].frame};
    ctxbroker::detail::give(input, found,
                            "input is null, or its size is not sizeof(ctxb_job_input)");
  });
}

ctxb_status ctxb_graph_output_extents(ctxb_graph* graph, const ctxb_job_info* info, uint32_t count,
                                      ctxb_rectangle* extents) {
  return answered(graph != nullptr && extents != nullptr, "graph or extents is null",
                  [&] { give(graph->graph.output_extents(read(*graph, info)), count, extents); });
}

ctxb_status ctxb_graph_input_regions(ctxb_graph* graph, const ctxb_job_info* info, uint32_t count,
                                     ctxb_rectangle* regions) {
  return answered(graph != nullptr && regions != nullptr, "graph or regions is null",
                  [&] { give(graph->graph.input_regions(read(*graph, info)), count, regions); });
}

uint64_t ctxb_graph_latency(const ctxb_graph* graph) {
  return graph == nullptr ? 0 : graph->graph.latency_frames();
}

ctxb_status ctxb_graph_latency_before(const ctxb_graph* graph, uint32_t node, uint64_t* frames) {
  if (frames != nullptr) *frames = 0;
  return answered(graph != nullptr && frames != nullptr, "graph or frames is null",
                  [&] { *frames = graph->graph.latency_before(node); });
}
