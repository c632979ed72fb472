// SPDX-License-Identifier: Apache-2.0
// Builds graphs and checks their jobs. graph_run.cpp starts jobs, and graph_finish.cpp ends them.
#include "ctxbroker/graph.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "graph/done_callback.hpp"
#include "graph/graph_access.hpp"
#include "graph/graph_impl.hpp"
#include "graph/job_check.hpp"
#include "graph/row.hpp"
#include "observe/enum_names.hpp"
#include "observe/span.hpp"
#include "plugin/access.hpp"
#include "plugin/tenant_impl.hpp"

namespace ctxbroker {

using namespace detail;  // the rooms behind this header

namespace {

constexpr std::uint32_t most_jobs = 64, most_waiting = 1024, most_changes = 65536;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ErrorKind::invalid_argument, "graph: " + why);
}

std::string text(std::uint32_t width, std::uint32_t height) {
  return std::to_string(width) + " x " + std::to_string(height);
}

// The descriptors, of instances that can be used.
std::vector<const PluginDescription*> check_nodes(const GraphDescription& description,
                                                  const BrokerImpl& broker,
                                                  const ActivationSizes& sizes) {
  std::vector<const PluginDescription*> plugins;
  if (sizes.max_width == 0 || sizes.max_height == 0) refuse("a size is 0");
  for (const GraphNode& node : description.nodes) {
    const std::string who = "the instance of " + node.name;
    if (node.instance == nullptr) refuse(who + " is null");
    if (&Access::of(*node.instance).broker() != &broker) refuse(who + " belongs to another broker");
    if (!node.instance->active()) refuse(who + " is not active; call activate first");
    const ActivationSizes& active = Access::of(*node.instance).activation()->sizes;
    if (sizes.max_width > active.max_width || sizes.max_height > active.max_height) {
      refuse(who + " is active for " + text(active.max_width, active.max_height) + " only");
    }
    if (node.instance->description().media == Media::audio) {
      check_rate("the graph", sizes.sample_rate, node.name, active.sample_rate);
    }
    plugins.push_back(&node.instance->description());
  }
  return plugins;
}

DevicePorts find_device_ports(const GraphDescription& description, const BrokerImpl& broker,
                              const GraphOptions& options) {
  DevicePorts ports;
  const GraphPort* any = nullptr;
  for (const GraphPort& port : description.inputs) {
    ports.inputs.push_back(port.on_device);
    if (port.on_device) any = &port;
  }
  for (const GraphPort& port : description.outputs) {
    ports.outputs.push_back(port.on_device);
    if (port.on_device) any = &port;
  }
  if (any == nullptr) return ports;
  if (description.tenant == nullptr) {
    refuse("port " + any->name + " is on the device, and the description has no tenant; name the " +
           "tenant whose memory it is");
  }
  if (options.jobs_waiting != 0) {
    refuse("port " + any->name + " is on the device, so no job of the graph can wait; set " +
           "jobs_waiting to 0");
  }
  if (options.late != LateJobs::deliver) {
    refuse("port " + any->name + " is on the device, so a late job can only be delivered");
  }
  ports.tenant = Access::of(*description.tenant);
  ports.device = description.device;
  if (&ports.tenant->broker() != &broker) refuse("its tenant belongs to another broker");
  ports.tenant = TenantImpl::lend(ports.tenant);
  return ports;
}

std::vector<Instance*> instances_of(const GraphDescription& description) {
  std::vector<Instance*> instances;
  for (const GraphNode& node : description.nodes) instances.push_back(&Access::of(*node.instance));
  return instances;
}

Wiring wire_active(const GraphDescription& description, const BrokerImpl& broker,
                   const ActivationSizes& sizes) {
  const auto plugins = check_nodes(description, broker, sizes);
  std::vector<FrameRanges> frames;
  for (const GraphNode& node : description.nodes) {
    frames.push_back(Access::of(*node.instance).frames());
  }
  return wire(description, plugins, sizes, frames);
}

// Before anything is allocated for so many.
GraphOptions checked(GraphOptions options) {
  if (options.jobs_in_flight == 0 || options.jobs_in_flight > most_jobs) {
    refuse("jobs_in_flight is not between 1 and " + std::to_string(most_jobs));
  }
  if (options.jobs_waiting > most_waiting) {
    refuse("jobs_waiting is above " + std::to_string(most_waiting));
  }
  if (options.changes_per_job > most_changes) {
    refuse("changes_per_job is above " + std::to_string(most_changes));
  }
  return options;
}

}  // namespace

Graph::Impl::Impl(BrokerImpl& owner, const GraphDescription& description,
                  const ActivationSizes& limits, GraphOptions wanted)
    : broker(owner),
      made_from{description, limits, checked(std::move(wanted)), {}},
      wiring(wire_active(description, owner, limits)),
      device_ports(find_device_ports(description, owner, options)),
      changes(instances_of(description), options.changes_per_job) {
  made_from.instances = instances_of(description);
  made_from.options.on_done = without_exceptions(
      std::move(made_from.options.on_done),
      [&owner](const std::string& what) { owner.host().log(Severity::error, "graph", what); });
  flights.resize(options.jobs_in_flight);
  outcomes.resize(options.jobs_in_flight + options.jobs_waiting);
  for (const WiredNode& node : wiring.nodes) {
    Instance& instance = Access::of(*description.nodes[node.origin].instance);
    nodes.push_back({&instance, instance.activation()->lease, instance.times_activated(), 0,
                     nullptr, 0, 0, instance.frames()});
  }
  for (Index n = 0; n < nodes.size(); ++n) {
    wiring.nodes[n].asks_regions = nodes[n].instance->asks_regions();
  }
  for (const Value& value : wiring.values) {
    if (!value.node) job_inputs.push_back({value.port, value.frame});
  }
  for (Node& node : nodes) {
    for (const Node& other : nodes) {
      if (other.instance != node.instance) continue;
      if (&other < &node) ++node.appearance;
      ++node.appearances;
    }
  }
  renew_lost_nodes();
  broker.host_blocks().register_all();
  broker.add_graph();  // last: nothing above has to be undone here
}

// Everything that belongs to the activations as they are now.
void Graph::Impl::build() {
  built = false;
  const std::size_t count = flights.size();
  flights.clear();
  flights.resize(count);
  std::vector<std::shared_ptr<Lease>> leases;
  std::vector<Index> home;
  is_realtime = false;
  for (Node& node : nodes) {
    Activation& activation = *node.instance->mutable_activation();
    node.lease = activation.lease;
    node.activation = activation.serial;
    if (node.instance->frames() != node.frames) {
      throw Error(ErrorKind::wrong_state,
                  "graph: plug-in " + node.instance->description().short_name +
                      " was activated again and now needs other frames; make a new graph");
    }
    node.stream = activation.stream;
    const auto shares = [&](const auto& lease) { return lease->shares_memory_with(*node.lease); };
    leases.push_back(node.lease);
    home.push_back(
        static_cast<Index>(std::find_if(leases.begin(), leases.end(), shares) - leases.begin()));
    activation.make_staging(count * node.appearances);
    is_realtime = is_realtime || activation.sizes.realtime;
  }
  if (device_ports.tenant != nullptr)
    device_ports.lease = device_ports.tenant->lease(device_ports.device).shared_from_this();
  plan = plan_buffers(wiring, home, sizes);
  for (JobFlight& flight : flights)
    flight = make_flight(wiring, plan, leases, device_ports, sizes, options);
  made_from.buffer_bytes = 0;
  for (const BufferPlan::Buffer& buffer : plan.buffers) {
    made_from.buffer_bytes += flights.size() * buffer.bytes;
  }
  // A timeline may begin at any job, and a job in real time must not allocate.
  for (JobFlight& flight : flights) {
    for (Index n = 0; is_realtime && n < nodes.size(); ++n) flight.times.emplace_back(leases[n]);
  }
  const auto is_large = [](const PinnedMemory& staging) {
    return staging && staging.bytes() >= CopyCrew::least_bytes;
  };
  const JobFlight& any = flights.front();
  if (!is_realtime && (std::any_of(any.uploads.begin(), any.uploads.end(), is_large) ||
                       std::any_of(any.downloads.begin(), any.downloads.end(), is_large))) {
    broker.copy_crew().start();
  }
  make_delay_lines(leases);
  std::size_t most_inputs = 0, most_feeds = 0, most_outputs = 0;
  for (const WiredNode& node : wiring.nodes) {
    most_inputs = std::max(most_inputs, node.plugin->inputs.size());
    most_feeds = std::max(most_feeds, node.feeds.size());
    most_outputs = std::max(most_outputs, node.outputs.size());
  }
  inputs.resize(most_inputs);
  feeds.resize(most_feeds);
  outputs.resize(most_outputs);
  built = true;
}

void Graph::Impl::check_job(const JobBuffers& buffers, const JobInfo& job) const {
  detail::check_job(wiring, sizes, buffers, job);
  if (buffers.after != nullptr && device_ports.tenant == nullptr) {
    refuse("the job comes after a stream, but no port of the graph is on the device");
  }
  for (const Node& node : nodes) {
    // Another graph may have renewed the plug-in after a loss. This graph follows it.
    const Instance& instance = *node.instance;
    const bool is_there = instance.activation() != nullptr || instance.awaits_renewal();
    if (!is_there || instance.times_activated() != node.times_activated) {
      throw Error(ErrorKind::wrong_state,
                  "graph: plug-in " + node.instance->description().short_name +
                      " was deactivated since the graph was made; make a new graph");
    }
  }
}

// A lost lease that can be made anew is, with its plug-in activated again. True when any was.
bool Graph::Impl::renew_lost_nodes() {
  bool any = false;
  for (const Node& node : nodes) {
    Instance& instance = *node.instance;
    const Activation* const activation = instance.activation();
    any = any || activation == nullptr || activation->serial != node.activation;
    const LeaseState state = node.lease->state();
    if (state == LeaseState::ready) continue;
    const std::string who = "graph: the context of plug-in " + instance.description().short_name;
    const Error::Origin origin{.device = node.lease->device_ordinal(),
                               .tenant = node.lease->tenant().name};
    if (state == LeaseState::ended) {
      const CUresult fault = broker.fault().status();
      throw Error(ErrorKind::context_lost,
                  who + " is gone: CUDA has ended in this process after " +
                      status_text(node.lease->table(), fault) +
                      "; only a new process can use it again",
                  origin);
    }
    if (state == LeaseState::hung) {
      throw Error(ErrorKind::context_lost,
                  who + " is hung: its work exceeded its timeout, and it takes no new work",
                  origin);
    }
    // Nothing that allocates, compiles or calls [main] functions belongs on an audio thread.
    if (activation != nullptr && activation->sizes.realtime) {
      throw Error(ErrorKind::context_lost,
                  who + " is gone; deactivate and activate it again, and make a new graph", origin);
    }
    any = true;
  }
  if (device_ports.lease != nullptr && device_ports.lease->lost()) {
    finish_all();
    built = false;  // the next job uses the tenant's next lease
    const Error::Origin origin{.device = device_ports.device,
                               .tenant = device_ports.lease->tenant().name};
    device_ports.lease.reset();
    throw Error(ErrorKind::context_lost,
                "graph: the lease with the memory of its ports is gone, and that memory with it; "
                "allocate it again, and submit again",
                origin);
  }
  const auto may_change = [](const Node& node) { return node.instance->watches_files(); };
  if (any || std::any_of(nodes.begin(), nodes.end(), may_change)) finish_all();
  for (const Node& node : nodes) {
    if (node.lease->lost()) continue;
    if (node.instance->take_changed_files()) any = true;
  }
  if (!any && built) return false;
  for (const Node& node : nodes) {
    // Several nodes may be of one tenant; each instance is renewed once.
    const Activation* activation = node.instance->activation();
    if (activation == nullptr || activation->lease->lost()) node.instance->renew();
  }
  build();
  return true;
}

Graph::Graph(Broker& broker, const GraphDescription& description, const ActivationSizes& sizes,
             const GraphOptions& options)
    : impl_(std::make_unique<Impl>(Access::of(broker), description, sizes, options)) {}
Graph::Graph(Broker& broker, const std::vector<PluginInstance*>& row, const ActivationSizes& sizes,
             const GraphOptions& options, SampleType samples)
    : Graph(broker, detail::in_a_row(row, samples), sizes, options) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&& other) noexcept {
  const Graph old(std::move(*this));
  impl_ = std::move(other.impl_);
  return *this;
}
Graph::~Graph() {
  if (impl_ != nullptr && !impl_->broker.is_in_its_process())
    detail::keep_for_ever(impl_.release());
}

namespace {

template <typename Impl>
Impl& alive(const std::unique_ptr<Impl>& impl) {
  if (impl == nullptr) throw Error(ErrorKind::wrong_state, "graph: it was moved from");
  return *impl;
}

}  // namespace

const GraphParts& GraphAccess::parts_of(const Graph& graph) {
  return alive(graph.impl_).made_from;
}

void GraphAccess::set_direct(Graph& graph, const std::vector<bool>& is_direct) {
  alive(graph.impl_).is_direct = is_direct;
}

std::uint64_t Graph::submit(const JobBuffers& buffers, const JobInfo& job,
                            const JobEvents& events) {
  Impl& impl = alive(impl_);
  const ScopedSpan span(SpanCategory::job, "submit", nullptr, host_tenant, job.width, job.height);
  return impl.submit(buffers, job, events);
}

JobOutcome Graph::finish(std::uint64_t job) {
  return alive(impl_).finish(job);
}

bool Graph::is_done(std::uint64_t job) {
  return alive(impl_).is_done(job);
}

bool Graph::cancel(std::uint64_t job) {
  return alive(impl_).cancel(job);
}

void Graph::follow(std::uint64_t job, CUstream stream) {
  alive(impl_).follow(job, stream);
}

std::vector<ImageRegion> Graph::output_extents(const JobInfo& job) {
  return alive(impl_).output_extents(job);
}

std::vector<ImageRegion> Graph::input_regions(const JobInfo& job) {
  return alive(impl_).input_regions(job);
}

const std::vector<JobInput>& Graph::job_inputs() const& {
  return alive(impl_).job_inputs;
}

JobOutcome Graph::process(const JobBuffers& buffers, const JobInfo& job, const JobEvents& events) {
  Impl& impl = alive(impl_);
  const ScopedSpan span(SpanCategory::job, "job", nullptr, host_tenant, job.width, job.height);
  return impl.finish(impl.submit(buffers, job, events));
}

JobOutcome Graph::process(const float* input, float* output, const JobInfo& job,
                          const JobEvents& events) {
  Impl& impl = alive(impl_);
  const GraphDescription& made = impl.made_from.description;
  const auto takes_floats = [](const std::vector<GraphPort>& ports) {
    return ports.size() == 1 && ports[0].samples == SampleType::float32 && !ports[0].on_device;
  };
  if (!takes_floats(made.inputs) || !takes_floats(made.outputs)) {
    refuse_job(
        "it does not have one input and one output of floats in the host's memory; give "
        "process its JobBuffers");
  }
  JobBuffers& one = impl.one;
  one.inputs.assign(1, input);
  one.outputs.assign(1, output);
  return process(one, job, events);
}

std::uint64_t Graph::latency_frames() const {
  return alive(impl_).lines.latency();
}

std::uint64_t Graph::latency_before(std::size_t node) const {
  const Impl& impl = alive(impl_);
  if (node >= impl.nodes.size()) {
    refuse("node " + std::to_string(node) + " does not exist; it has " +
           std::to_string(impl.nodes.size()));
  }
  return impl.lines.latency_before(node);
}

const char* to_string(JobOutcome outcome) noexcept {
  constexpr std::array names{"done", "late", "dry", "dropped", "forgotten", "cancelled"};
  return name_of(names, outcome);
}

}  // namespace ctxbroker
