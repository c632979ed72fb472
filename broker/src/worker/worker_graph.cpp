// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/worker_graph.hpp"

#include <utility>

#include "observe/whole_file.hpp"
#include "worker/graph_client.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker {

WorkerGraph::WorkerGraph(WorkerGraphDescription description, WorkerGraphOptions options)
    : impl_(std::make_unique<detail::GraphClient>(std::move(description), std::move(options))) {}
WorkerGraph::WorkerGraph(WorkerGraph&&) noexcept = default;
WorkerGraph& WorkerGraph::operator=(WorkerGraph&&) noexcept = default;
WorkerGraph::~WorkerGraph() = default;

const DriverInfo& WorkerGraph::driver() const {
  return impl_->driver();
}
const std::vector<DeviceInfo>& WorkerGraph::devices() const {
  return impl_->devices();
}
const std::vector<GraphEnd>& WorkerGraph::inputs() const {
  return impl_->graph().inputs;
}

const std::vector<GraphEnd>& WorkerGraph::outputs() const {
  return impl_->graph().outputs;
}

const PluginDescription& WorkerGraph::description(std::size_t node) const {
  return impl_->description(node);
}
WorkerNodeState WorkerGraph::node_state(std::size_t node) {
  return impl_->node_state(node);
}

BrokerMetrics WorkerGraph::metrics() {
  return impl_->metrics();
}
void WorkerGraph::poll() {
  impl_->poll();
}
TimelineSummary WorkerGraph::write_timeline(const TimelineSink& sink) {
  return impl_->write_timeline(sink);
}
TimelineSummary WorkerGraph::write_timeline(const std::filesystem::path& path) {
  TimelineSummary summary;
  detail::write_whole_file(path, [&](const TimelineSink& sink) { summary = write_timeline(sink); });
  return summary;
}

void WorkerGraph::set_parameter(std::size_t node, std::string_view id,
                                const ParameterValue& value) {
  impl_->set_parameter(node, id, value);
}
void WorkerGraph::set_text(std::size_t node, std::string_view id, std::string_view text) {
  impl_->set_text(node, id, text);
}
ParameterValue WorkerGraph::parameter_value(std::size_t node, std::string_view id) const {
  return impl_->parameter_value(node, id);
}
std::string WorkerGraph::text(std::size_t node, std::string_view id) const {
  return impl_->text(node, id);
}
ParameterValue WorkerGraph::from_text(std::size_t node, std::string_view id,
                                      std::string_view text) {
  return impl_->from_text(node, id, text);
}
std::string WorkerGraph::to_text(std::size_t node, std::string_view id,
                                 const ParameterValue& value) {
  return impl_->to_text(node, id, value);
}
Preset WorkerGraph::save_preset(std::size_t node) {
  return impl_->save_preset(node);
}
std::vector<PresetRemark> WorkerGraph::load_preset(std::size_t node, const Preset& preset) {
  return impl_->load_preset(node, preset);
}

void WorkerGraph::activate(const ActivationSizes& sizes) {
  impl_->activate(sizes, impl_->graph().inputs, impl_->graph().outputs);
}
void WorkerGraph::activate(const ActivationSizes& sizes, std::vector<GraphEnd> inputs,
                           std::vector<GraphEnd> outputs) {
  impl_->activate(sizes, std::move(inputs), std::move(outputs));
}
void WorkerGraph::deactivate() {
  impl_->deactivate();
}
bool WorkerGraph::active() const noexcept {
  return impl_->active();
}

const std::vector<JobInput>& WorkerGraph::job_inputs() const {
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
std::uint64_t WorkerGraph::submit(const JobBuffers& buffers, const JobInfo& job,
                                  const WorkerJobEvents& events) {
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
  return impl_->process(buffers, job, events);
}
JobOutcome WorkerGraph::process(const float* input, float* output, const JobInfo& job,
                                const WorkerJobEvents& events) {
  return impl_->process({{input}, {output}}, job, events);
}

WorkerState WorkerGraph::state() const {
  return impl_->worker()->state();
}
std::string WorkerGraph::reason() const {
  return impl_->worker()->reason();
}
std::optional<WorkerEnd> WorkerGraph::last_end() const {
  return impl_->worker()->last_end();
}
std::uint64_t WorkerGraph::ends() const {
  return impl_->worker()->ends();
}
int WorkerGraph::process_id() const {
  return impl_->worker()->process_id();
}
void WorkerGraph::end(const std::string& reason) {
  impl_->worker()->end(reason);
}
void WorkerGraph::pardon() {
  impl_->worker()->pardon();
}

}  // namespace ctxbroker
