// SPDX-License-Identifier: Apache-2.0
// The processes of a graph, and what is between them. grouped_jobs.cpp has the jobs.
#include "worker/grouped_graph.hpp"

#include <algorithm>
#include <exception>
#include <future>
#include <utility>

#include "context/host_pages.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/manifest.hpp"
#include "ctxbroker/policy.hpp"
#include "plugin/access.hpp"
#include "plugin/description_json.hpp"
#include "worker/graph_client.hpp"
#include "worker/host_segment.hpp"

namespace ctxbroker::detail {
namespace {

// The plug-in of a node, as the manifest beside its library describes it. Nothing if there is none,
// or if it cannot be used.
std::optional<PluginDescription> read_description(const WorkerNode& node) {
  const ManifestReading reading = read_manifest(node.library);
  if (!reading.trouble.empty()) return {};
  const auto& plugins = reading.manifest.plugins;
  if (node.plugin.empty() && plugins.size() == 1) return plugins.front();
  for (const auto member : {&PluginDescription::id, &PluginDescription::short_name}) {
    for (const PluginDescription& plugin : plugins) {
      if (plugin.*member == node.plugin) return plugin;
    }
  }
  return {};
}

// Asks a process about plug-ins without manifests.
void ask_for_descriptions(const WorkerGraphDescription& graph, WorkerGraphOptions options,
                          std::vector<std::optional<PluginDescription>>& plugins) {
  WorkerGraphDescription unknown{{{"in"}}, {{"out"}}, {}};
  for (std::size_t n = 0; n < plugins.size(); ++n) {
    if (!plugins[n]) unknown.nodes.push_back(graph.nodes[n]);
  }
  if (unknown.nodes.empty()) return;
  options.stand_by = false;
  GraphClient client(std::move(unknown), std::move(options));
  std::size_t next = 0;
  for (auto& plugin : plugins) {
    if (!plugin) plugin = client.description(next++);
  }
}

// Nothing: neither the host nor the policy has chosen for this plug-in.
std::optional<WorkerGrouping> chosen(const WorkerNode& node, const PluginDescription& plugin,
                                     const Policy& policy) {
  if (node.grouping) return node.grouping;
  const auto entry = policy.by_id.find(plugin.id);
  if (entry != policy.by_id.end() && entry->second.process) return entry->second.process;
  return policy.for_all.process;
}

// This host does not run plug-ins itself, whatever its users want.
void forget_host(Policy& policy) {
  const auto forget = [](PluginPolicy& one) {
    if (one.process == WorkerGrouping::in_host) one.process.reset();
  };
  forget(policy.for_all);
  for (auto& [id, one] : policy.by_id) forget(one);
}

WorkerGrouping grouping_of(const WorkerNode& node, const PluginDescription& plugin,
                           const Policy& policy, WorkerGrouping otherwise) {
  if (const auto choice = chosen(node, plugin, policy)) return *choice;
  const bool asks_for_worker =
      node.options.lease.kind == LeaseKind::worker ||
      (node.options.lease.kind == LeaseKind::automatic && plugin.lease_wish == LeaseKind::worker);
  return asks_for_worker && otherwise == WorkerGrouping::in_host ? WorkerGrouping::by_plugin
                                                                 : otherwise;
}

// Returns whether all plug-ins share one process whatever they are, because no choice says
// otherwise.
bool is_together(const WorkerGraphDescription& graph, const Policy& policy,
                 WorkerGrouping grouping) {
  const auto differs = [](const std::optional<WorkerGrouping>& one) {
    return one && *one != WorkerGrouping::together;
  };
  return grouping == WorkerGrouping::together && !differs(policy.for_all.process) &&
         std::none_of(policy.by_id.begin(), policy.by_id.end(),
                      [&](const auto& one) { return differs(one.second.process); }) &&
         std::none_of(graph.nodes.begin(), graph.nodes.end(),
                      [&](const WorkerNode& node) { return differs(node.grouping); });
}

// "sample_host: blur, merge"; in a row, "sample_host: 1 blur, 2 merge".
std::string name_of(const std::string& graph, const Group& group) {
  constexpr std::size_t most = 4;
  std::string name = graph.empty() ? "graph" : graph;
  for (std::size_t n = 0; n < group.nodes.size() && n < most; ++n) {
    name += (n == 0 ? ": " : ", ") + group.graph.nodes[n].name;
  }
  return group.nodes.size() > most ? name + ", ..." : name;
}

void check_as_described(const PluginDescription& is, const PluginDescription& said) {
  if (to_json(std::vector{is}) == to_json(std::vector{said})) return;
  throw Error(ErrorKind::plugin_load, "library \"" + is.library_path + "\" describes " + is.id +
                                          " differently than before or in its manifest; build the "
                                          "library again");
}

// Takes the formats of other ports, which have other names.
void take_formats(std::vector<GraphPort>& ports, const std::vector<GraphPort>& from) {
  for (std::size_t i = 0; i < ports.size(); ++i) {
    ports[i].channels = from[i].channels;
    ports[i].samples = from[i].samples;
  }
}

std::vector<GraphPort> with_formats(std::vector<GraphPort> ports, const std::vector<Index>& values,
                                    const Wiring& wiring, const std::vector<bool>& relays) {
  for (std::size_t i = 0; i < ports.size(); ++i) {
    ports[i].on_device = relays[values[i]];
    const Format& format = wiring.values[values[i]].format;
    if (format.result_bytes != 0) continue;
    ports[i].channels = format.channels;
    ports[i].samples = format.samples;
  }
  return ports;
}

std::unique_ptr<GraphSegment> make_part(WorkerGraphDescription graph, WorkerGraphOptions options,
                                        bool in_host) {
  if (in_host)
    return std::make_unique<HostSegment>(*options.broker, std::move(graph), options.graph);
  return std::make_unique<GraphClient>(std::move(graph), std::move(options));
}

}  // namespace

GroupedGraph::GroupedGraph(WorkerGraphDescription description, const WorkerGraphOptions& options)
    : description_(checked(std::move(description), options)),
      most_changes_(options.graph.changes_per_job),
      recorder_(options.worker.records),
      name_(options.worker.name.empty() ? "graph" : options.worker.name),
      dry_jobs_(2 * std::size_t{options.graph.jobs_in_flight}) {
  const std::vector<std::optional<PluginDescription>> said = group(options);
  start(options);
  place_.resize(description_.nodes.size());
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (std::size_t i = 0; i < groups_[g].nodes.size(); ++i) {
      const Index n = groups_[g].nodes[i];
      place_[n] = {g, i};
      if (said[n]) check_as_described(segments_[g]->description(i), *said[n]);
    }
  }
  if (options.dry_while_away) allow_dry_pictures();
  if (is_whole() || options.graph.late == LateJobs::deliver) return;
  throw Error(ErrorKind::invalid_argument,
              "GraphOptions::late must be LateJobs::deliver for a graph in several processes, and "
              "for pictures with dry_while_away");
}

std::vector<const PluginDescription*> GroupedGraph::plugins() const {
  std::vector<const PluginDescription*> all;
  for (const auto& [process, node] : place_) all.push_back(&segments_[process]->description(node));
  return all;
}

// The processes all at once, because each takes a while.
void GroupedGraph::start(const WorkerGraphOptions& options) {
  std::vector<std::future<std::unique_ptr<GraphSegment>>> started;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    WorkerGraphOptions own = options;
    if (groups_.size() > 1) own.worker.name = name_of(options.worker.name, groups_[g]);
    if (g + 1 < groups_.size()) {  // the host waits for each job
      own.graph.jobs_in_flight = 1;
      own.graph.on_done = nullptr;
    }
    const bool in_host = groups_[g].in_host;
    const bool is_async = groups_.size() > 1 && !in_host;
    started.push_back(std::async(is_async ? std::launch::async : std::launch::deferred, make_part,
                                 groups_[g].graph, std::move(own), in_host));
  }
  for (auto& one : started) segments_.push_back(one.get());
}

// Returns what the plug-ins are said to be, if that had to be known.
std::vector<std::optional<PluginDescription>> GroupedGraph::group(
    const WorkerGraphOptions& options) {
  std::vector<std::optional<PluginDescription>> said(description_.nodes.size());
  Policy policy = options.policy.empty() ? Policy() : read_policy(options.policy);
  if (options.broker == nullptr) forget_host(policy);
  if (!is_together(description_, policy, options.grouping)) {
    std::transform(description_.nodes.begin(), description_.nodes.end(), said.begin(),
                   read_description);
    ask_for_descriptions(description_, options, said);
    std::vector<const PluginDescription*> plugins;
    std::vector<std::string> keys;
    for (std::size_t n = 0; n < said.size(); ++n) {
      const WorkerNode& node = description_.nodes[n];
      plugins.push_back(&*said[n]);
      keys.push_back(group_key(grouping_of(node, *said[n], policy, options.grouping), *said[n], n));
      if (keys.back() != host_key || options.broker != nullptr) continue;
      throw Error(ErrorKind::invalid_argument,
                  "graph: the plug-in of node \"" + node.name +
                      "\" is to be in the host's process, and WorkerGraphOptions::broker is null; "
                      "set it to the host's broker, or choose another WorkerGrouping");
    }
    wired_ = with_edges(description_, plugins);
    groups_ = group_nodes(wired_, connect(graph_of(wired_), plugins), keys);
  }
  check_in_host_memory(description_.inputs);
  check_in_host_memory(description_.outputs);
  if (groups_.size() > 1) return said;
  const bool in_host = !groups_.empty() && groups_.front().in_host;
  groups_.assign(1, {in_host, {}, description_, {}, {}});
  for (std::size_t n = 0; n < said.size(); ++n) groups_.front().nodes.push_back(n);
  return said;
}

GroupedGraph::Place GroupedGraph::place(std::size_t node) const {
  if (node >= place_.size()) {
    throw Error(ErrorKind::invalid_argument, "graph: there is no node " + std::to_string(node));
  }
  return {*segments_[place_[node].first], place_[node].second, place_[node].first};
}

void GroupedGraph::check_active() const {
  if (!active_) throw Error(ErrorKind::wrong_state, "graph: it is not active; call activate first");
}

// Only one worker takes ports on the device, and the dry signal is made in host memory.
void GroupedGraph::check_in_host_memory(const std::vector<GraphPort>& ports) const {
  for (const GraphPort& port : ports) {
    const bool in_host = !groups_.empty() && groups_.front().in_host;
    const bool is_one_worker = groups_.size() <= 1 && !in_host;
    if (!port.on_device || (is_one_worker && !has_dry_pictures_)) continue;
    const std::string why = is_one_worker ? "dry_while_away is set"
                            : groups_.size() > 1
                                ? "the graph is in " + std::to_string(groups_.size()) + " processes"
                                : "the plug-ins are in the host";
    throw Error(
        ErrorKind::invalid_argument,
        "graph: the port \"" + port.name + "\" is on the device, and " + why +
            ", so it has to be in host memory; " +
            (is_one_worker ? "clear GraphPort::on_device or dry_while_away"
                           : "use WorkerGrouping::together, or clear GraphPort::on_device"));
  }
}

WorkerBuffer GroupedGraph::lend(const HostMemory& memory) {
  std::shared_ptr<HostPages> pages = Access::pages_of(memory);
  if (pages != nullptr && !pages->are_hosts()) return segments_.front()->lend(std::move(pages));
  throw Error(ErrorKind::invalid_argument,
              pages == nullptr ? "graph: the HostMemory holds nothing"
                               : "graph: memory from Broker::register_memory cannot be lent, "
                                 "because no other process can map it; lend memory from "
                                 "Broker::host_memory, or let the graph copy");
}

WorkerDeviceBuffer GroupedGraph::lend(const ctxbroker::DeviceMemory& memory) {
  if (segments_.size() == 1) return segments_.front()->lend(memory);
  throw Error(ErrorKind::invalid_argument,
              "graph: it is in " + std::to_string(segments_.size()) +
                  " processes, and device memory can be lent to one only; use "
                  "WorkerGrouping::together, or host memory");
}

void GroupedGraph::activate(const ActivationSizes& sizes, std::vector<GraphPort> inputs,
                            std::vector<GraphPort> outputs) {
  check_activation(description_, place(0).part.description(place(0).node).media, sizes, inputs,
                   outputs);
  check_in_host_memory(inputs);
  check_in_host_memory(outputs);
  sizes_ = sizes;
  if (is_whole()) {
    active_ = false;
    segments_.front()->activate(sizes, inputs, outputs);
  } else {
    deactivate();
    GraphDescription graph = graph_of(wired_);
    take_formats(graph.inputs, inputs);
    take_formats(graph.outputs, outputs);
    const Wiring whole = wire(graph, plugins(), sizes);
    const std::vector<bool> relays = find_relays(whole), none(relays.size());
    activate_segments(whole, relays);
    // Known only now, because the plug-ins have said which frames they need.
    const std::vector<bool> usable = read_once(relays);
    if (usable != relays) activate_segments(whole, usable);
    try {
      make_relays(usable);
    } catch (const std::exception& error) {
      recorder_.record(
          Severity::info, host_tenant, name_, "worker",
          std::string("pictures go from process to process through host memory: ") + error.what());
      deactivate();
      activate_segments(whole, none);
    }
  }
  description_.inputs = std::move(inputs);
  description_.outputs = std::move(outputs);
  active_ = true;
}

// All, or none.
void GroupedGraph::activate_segments(const Wiring& whole, const std::vector<bool>& relays) {
  try {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const Group& group = groups_[g];
      segments_[g]->activate(sizes_, with_formats(group.graph.inputs, group.inputs, whole, relays),
                             with_formats(group.graph.outputs, group.outputs, whole, relays));
    }
    make_steps(whole);
  } catch (...) {
    const std::exception_ptr why = std::current_exception();
    try {
      deactivate();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the first error counts
    }
    std::rethrow_exception(why);
  }
}

// Does the work for all segments, even if one fails. Then it throws the first error. A segment that
// reads a relay comes before the one that made it, because memory that another process has opened
// must not be given back.
template <typename Work>
void GroupedGraph::for_all(const Work& work) {
  std::exception_ptr first;
  for (auto part = segments_.rbegin(); part != segments_.rend(); ++part) {
    try {
      work(**part);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

void GroupedGraph::poll() {
  for_all([](GraphSegment& part) { part.poll(); });
}

void GroupedGraph::deactivate() {
  active_ = false;
  for_all([](GraphSegment& part) { part.deactivate(); });
}

void GroupedGraph::make_steps(const Wiring& whole) {
  std::vector<FrameRanges> frames;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    FrameRanges ranges(groups_[g].inputs.size());
    for (const JobInput& input : segments_[g]->job_inputs()) {
      FrameRange& range = ranges[input.input];
      range.first = std::min(range.first, input.frame);
      range.last = std::max(range.last, input.frame);
    }
    frames.push_back(std::move(ranges));
  }
  wiring_ = wire_groups(groups_, whole, frames, ports_);
  samples_.clear();
  last_reads_relay_ = false;
  job_inputs_.clear();
  for (const Value& value : wiring_.values) {
    if (!value.node) job_inputs_.push_back({value.port, value.frame});
    const auto bytes = value.node ? bytes_of(value.format, sizes_.max_width, sizes_.max_height) : 0;
    samples_.emplace_back().storage.resize(bytes);
  }
  steps_.clear();
  for (const WiredNode& node : wiring_.nodes) {
    Step& step = steps_.emplace_back();
    for (const JobInput& input : ask_segment(node).job_inputs()) {
      const auto feed = std::find_if(node.feeds.begin(), node.feeds.end(), [&](const Feed& one) {
        return one.port == input.input && one.frame == input.frame;
      });
      step.feeds.push_back(static_cast<Index>(feed - node.feeds.begin()));
    }
    step.needs.resize(step.feeds.size());
    step.parts.resize(step.feeds.size());
  }
  output_lines_.clear();
  output_lines_.resize(wiring_.outputs.size());
  latencies_.clear();
  goes_on_with_.reset();
  regions_of_ = {};
  regions_.clear();
  keep_aligned();
}

// Also after a restart, when a plug-in can have another latency.
void GroupedGraph::keep_aligned() {
  if (wiring_.media != Media::audio) return;
  const auto latency_of = [&](const WiredNode& node) { return ask_segment(node).latency_frames(); };
  const auto is_as_before = [&](const WiredNode& node, std::uint64_t latency) {
    return latency_of(node) == latency;
  };
  if (std::equal(wiring_.nodes.begin(), wiring_.nodes.end(), latencies_.begin(), latencies_.end(),
                 is_as_before)) {
    return;
  }
  std::vector<std::uint64_t> latencies;
  for (const WiredNode& node : wiring_.nodes) latencies.push_back(latency_of(node));
  if (!latencies_.empty()) lose_step();  // the delays begin anew, with silence
  latency_ = plan_latency(wiring_, latencies);
  std::uint64_t all_bytes = 0;
  const auto line = [&](Index value, std::uint64_t delay) {
    const std::uint32_t own = wiring_.values[value].format.channels;
    return delay_by(delay, sizes_.max_width, own != 0 ? own : sizes_.max_height, all_bytes);
  };
  for (Index n = 0; n < steps_.size(); ++n) {
    steps_[n].lines.clear();
    for (std::size_t i = 0; i < steps_[n].feeds.size(); ++i) {
      const Index feed = steps_[n].feeds[i];
      steps_[n].lines.push_back(line(*wiring_.nodes[n].inputs[feed], latency_.inputs[n][feed]));
      steps_[n].parts[i].resize(
          steps_[n].lines[i] ? bytes_of(wiring_.values[*wiring_.nodes[n].inputs[feed]].format,
                                        sizes_.max_width, sizes_.max_height)
                             : 0);
    }
  }
  output_lines_.clear();
  for (std::size_t port = 0; port < wiring_.outputs.size(); ++port) {
    output_lines_.push_back(line(wiring_.outputs[port], latency_.outputs[port]));
  }
  latencies_ = std::move(latencies);
}

const std::vector<JobInput>& GroupedGraph::job_inputs() const {
  if (is_whole()) return segments_.front()->job_inputs();
  check_active();
  return job_inputs_;
}

std::uint64_t GroupedGraph::latency_frames() {
  if (is_whole()) return segments_.front()->latency_frames();
  check_active();
  keep_aligned();
  return latency_.total;
}

std::uint64_t GroupedGraph::latency_before(std::size_t node) {
  const Place at = place(node);
  if (is_whole()) return at.part.latency_before(node);
  check_active();
  keep_aligned();
  const std::uint64_t inside = at.part.latency_before(at.node);
  return wiring_.media == Media::audio ? latency_.before[at.process] + inside : inside;
}

}  // namespace ctxbroker::detail
