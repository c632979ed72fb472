// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/worker_graph.hpp"

#include <unistd.h>

#include <array>
#include <utility>

#include "ctxbroker/error.hpp"
#include "observe/enum_names.hpp"
#include "observe/whole_file.hpp"
#include "worker/grouped_graph.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker {

namespace {

// In the order of the enumeration.
constexpr std::array grouping_names{"together", "by-vendor", "by-plug-in", "each-instance",
                                    "in-host"};

// A stream of this process cannot hold up work of another one.
void check_no_waiting(const JobBuffers& buffers) {
  if (buffers.after == nullptr) return;
  throw Error(ErrorKind::invalid_argument,
              "graph: JobBuffers::after is set, and a job in a worker waits for no stream of the "
              "host's; synchronise the stream before submit, and leave `after` null");
}

}  // namespace

const char* to_string(WorkerGrouping grouping) noexcept {
  return detail::name_of(grouping_names, grouping);
}

std::optional<WorkerGrouping> parse_worker_grouping(std::string_view text) noexcept {
  return detail::value_of<WorkerGrouping>(grouping_names, text);
}

WorkerGraph::WorkerGraph(WorkerGraphDescription description, const WorkerGraphOptions& options)
    : impl_(std::make_unique<detail::GroupedGraph>(std::move(description), options)) {}
WorkerGraph::WorkerGraph(WorkerGraph&&) noexcept = default;
WorkerGraph& WorkerGraph::operator=(WorkerGraph&& other) noexcept {
  const WorkerGraph old(std::move(*this));
  impl_ = std::move(other.impl_);
  return *this;
}
WorkerGraph::~WorkerGraph() {
  if (impl_ != nullptr && !impl_->is_in_its_process()) detail::keep_for_ever(impl_.release());
}

const DriverInfo& WorkerGraph::driver() const& {
  return impl_->parts().front()->driver();
}
const std::vector<DeviceInfo>& WorkerGraph::devices() const& {
  return impl_->parts().front()->devices();
}
const std::vector<GraphPort>& WorkerGraph::inputs() const& {
  return impl_->graph().inputs;
}

const std::vector<GraphPort>& WorkerGraph::outputs() const& {
  return impl_->graph().outputs;
}

const PluginDescription& WorkerGraph::description(std::size_t node) const& {
  const auto at = impl_->place(node);
  return at.part.description(at.node);
}
WorkerNodeState WorkerGraph::node_state(std::size_t node) {
  const auto at = impl_->place(node);
  return at.part.node_state(at.node);
}

BrokerMetrics WorkerGraph::metrics(std::size_t node) {
  return impl_->place(node).part.metrics();
}
void WorkerGraph::poll() {
  impl_->poll();
}
TimelineSummary WorkerGraph::write_timeline(const TimelineSink& sink, std::size_t node) {
  return impl_->place(node).part.write_timeline(sink);
}
TimelineSummary WorkerGraph::write_timeline(const std::filesystem::path& path, std::size_t node) {
  TimelineSummary summary;
  detail::write_whole_file(path,
                           [&](const TimelineSink& sink) { summary = write_timeline(sink, node); });
  return summary;
}

void WorkerGraph::set_parameter(std::size_t node, std::string_view id,
                                const ParameterValue& value) {
  const auto at = impl_->place(node);
  at.part.set_parameter(at.node, id, value);
}
void WorkerGraph::set_text(std::size_t node, std::string_view id, std::string_view text) {
  const auto at = impl_->place(node);
  at.part.set_text(at.node, id, text);
}
ParameterValue WorkerGraph::parameter_value(std::size_t node, std::string_view id) const {
  const auto at = impl_->place(node);
  return at.part.parameter_value(at.node, id);
}
std::string WorkerGraph::text(std::size_t node, std::string_view id) const {
  const auto at = impl_->place(node);
  return at.part.text(at.node, id);
}
ParameterValue WorkerGraph::from_text(std::size_t node, std::string_view id,
                                      std::string_view text) {
  const auto at = impl_->place(node);
  return at.part.from_text(at.node, id, text);
}
std::string WorkerGraph::to_text(std::size_t node, std::string_view id,
                                 const ParameterValue& value) {
  const auto at = impl_->place(node);
  return at.part.to_text(at.node, id, value);
}
Preset WorkerGraph::save_preset(std::size_t node) {
  const auto at = impl_->place(node);
  return at.part.save_preset(at.node);
}
std::vector<PresetRemark> WorkerGraph::load_preset(std::size_t node, const Preset& preset) {
  const auto at = impl_->place(node);
  return at.part.load_preset(at.node, preset);
}

void WorkerGraph::activate(const ActivationSizes& sizes) {
  impl_->activate(sizes, impl_->graph().inputs, impl_->graph().outputs);
}
void WorkerGraph::activate(const ActivationSizes& sizes, std::vector<GraphPort> inputs,
                           std::vector<GraphPort> outputs) {
  impl_->activate(sizes, std::move(inputs), std::move(outputs));
}
void WorkerGraph::deactivate() {
  impl_->deactivate();
}
bool WorkerGraph::active() const noexcept {
  return impl_->active();
}

const std::vector<JobInput>& WorkerGraph::job_inputs() const& {
  return impl_->job_inputs();
}
std::vector<ImageRegion> WorkerGraph::output_extents(const JobInfo& job) {
  return impl_->output_extents(job);
}
std::vector<ImageRegion> WorkerGraph::input_regions(const JobInfo& job) {
  return impl_->input_regions(job);
}
std::uint64_t WorkerGraph::latency_frames() const {
  return impl_->latency_frames();
}
std::uint64_t WorkerGraph::latency_before(std::size_t node) const {
  return impl_->latency_before(node);
}

WorkerBuffer WorkerGraph::lend(std::size_t bytes) {
  return impl_->lend(bytes);
}
WorkerBuffer WorkerGraph::lend(const HostMemory& memory) {
  return impl_->lend(memory);
}
WorkerDeviceBuffer WorkerGraph::lend(const DeviceMemory& memory) {
  return impl_->lend(memory);
}
std::uint64_t WorkerGraph::submit(const JobBuffers& buffers, const JobInfo& job,
                                  const WorkerJobEvents& events) {
  check_no_waiting(buffers);
  return impl_->submit(buffers, job, events);
}
JobOutcome WorkerGraph::finish(std::uint64_t job) {
  return impl_->finish(job);
}
bool WorkerGraph::is_done(std::uint64_t job) {
  return impl_->is_done(job);
}
JobOutcome WorkerGraph::process(const JobBuffers& buffers, const JobInfo& job,
                                const WorkerJobEvents& events) {
  check_no_waiting(buffers);
  return impl_->process(buffers, job, events);
}
JobOutcome WorkerGraph::process(const float* input, float* output, const JobInfo& job,
                                const WorkerJobEvents& events) {
  return impl_->process(input, output, job, events);
}

std::size_t WorkerGraph::processes() const {
  return impl_->parts().size();
}
std::size_t WorkerGraph::process_of(std::size_t node) const {
  return impl_->place(node).process;
}
WorkerState WorkerGraph::state(std::size_t node) const {
  const auto worker = impl_->place(node).part.worker();
  return worker ? worker->state() : WorkerState::ready;
}
std::string WorkerGraph::reason(std::size_t node) const {
  const auto worker = impl_->place(node).part.worker();
  return worker ? worker->reason() : std::string();
}
std::optional<WorkerExit> WorkerGraph::last_exit(std::size_t node) const {
  const auto worker = impl_->place(node).part.worker();
  return worker ? worker->last_exit() : std::nullopt;
}
std::uint64_t WorkerGraph::exits(std::size_t node) const {
  const auto worker = impl_->place(node).part.worker();
  return worker ? worker->exits() : 0;
}
int WorkerGraph::process_id(std::size_t node) const {
  const auto worker = impl_->place(node).part.worker();
  return worker ? worker->process_id() : ::getpid();
}
void WorkerGraph::kill(const std::string& reason) {
  for (const auto& part : impl_->parts()) {
    if (const auto worker = part->worker()) worker->kill(reason);
  }
}
void WorkerGraph::pardon() {
  for (const auto& part : impl_->parts()) {
    if (const auto worker = part->worker()) worker->pardon();
  }
}

}  // namespace ctxbroker
