// SPDX-License-Identifier: Apache-2.0
#include "worker/graph_served.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string_view>
#include <system_error>
#include <utility>

#include "ctxbroker/error.hpp"
#include "ctxbroker/version.hpp"
#include "graph/graph_access.hpp"
#include "plugin/access.hpp"
#include "plugin/description_json.hpp"
#include "plugin/instance.hpp"
#include "worker/done_jobs.hpp"
#include "worker/packet.hpp"

namespace ctxbroker::detail {

void check_message(bool good, const char* what) {
  if (!good) throw Error(ErrorKind::wrong_state, std::string("the host's message: ") + what);
}

namespace {

// Returns what the answer's text says of a state: how many bytes of those behind it are its.
Json add_state(States& states, std::vector<std::byte> state) {
  states.push_back(std::move(state));
  return states.back().size();
}

// The host's records get those of the broker here. Those that the host is too slow for are lost.
void pass_record(const ctxb_worker_host& host, const Record& record) {
  const std::string text = dumped({{"severity", static_cast<int>(record.severity)},
                                   {"tenant", record.tenant_name},
                                   {"topic", record.topic},
                                   {"text", record.text.substr(0, 2048)}});
  host.notify(record_notification, text.data(), text.size());
}

Json values_of(const PluginInstance& instance) {
  Json values = Json::array();
  for (const ParameterDescription& parameter : instance.description().parameters) {
    values.push_back(parameter.is_text() ? Json(instance.text(parameter.id))
                                         : to_json(instance.parameter_value(parameter.id)));
  }
  return values;
}

// The device memory that all tenants hold.
std::uint64_t memory_of(const BrokerMetrics& metrics) {
  std::uint64_t bytes = 0;
  for (const TenantMetrics& tenant : metrics.tenants) {
    bytes += tenant.held_bytes;
    for (const LeaseMetrics& lease : tenant.leases) bytes += lease.memory_bytes;
  }
  return bytes;
}

// Writes on the board, and rings. The host takes the board back when there is no graph any more.
std::function<void(std::uint64_t)> teller(const ctxb_worker_host* host, std::uint64_t block) {
  void* memory = nullptr;
  std::uint64_t bytes = 0;
  check_message(host->buffer(block, &memory, &bytes) == CTXB_OK && bytes >= sizeof(DoneBoard),
                "the board of done jobs is not lent, or too small");
  auto* const board = static_cast<DoneBoard*>(memory);
  *board = 0;
  return [host, board](std::uint64_t job) {
    const std::atomic_ref last(*board);
    std::uint64_t before = last.load();
    while (before < job && !last.compare_exchange_weak(before, job)) {
    }
    host->notify(ring_notification, nullptr, 0);
  };
}

}  // namespace

void read_table(const ctxb_worker_host& host, const JobMessage& message,
                const std::vector<bool>& on_device, const SharedDevices& devices, JobTable& read) {
  void* memory = nullptr;
  std::uint64_t size = 0;
  check_message(host.buffer(message.block, &memory, &size) == CTXB_OK, "its block is not lent");
  auto* const begin = static_cast<std::byte*>(memory);
  const std::uint64_t table =
      (std::uint64_t{message.inputs} + message.outputs) * sizeof(BufferPlace) +
      std::uint64_t{message.extents} * sizeof(ImageRegion) +
      std::uint64_t{message.changes} * sizeof(WorkerParameterChange);
  check_message(message.bytes <= size && table <= message.bytes, "its block is too small");
  const std::byte* at = begin;
  const auto take = [&](auto& value) {
    std::memcpy(&value, at, sizeof value);
    at += sizeof value;
  };
  read.buffers.inputs.clear();
  read.buffers.outputs.clear();
  read.places.clear();
  for (std::uint32_t i = 0; i < message.inputs + message.outputs; ++i) {
    BufferPlace place;
    take(place);
    check_message(i < on_device.size() && on_device[i] == (place.on_device != 0),
                  "a buffer is not where its port is");
    void* block = memory;
    std::uint64_t bytes = message.bytes;
    if (place.on_device != 0) {
      const ctxbroker::DeviceMemory& lent = devices.at(place.block);
      block = reinterpret_cast<void*>(lent.address());
      bytes = lent.bytes();
    } else if (place.block != 0) {
      check_message(host.buffer(place.block, &block, &bytes) == CTXB_OK,
                    "a buffer's block is not lent");
    }
    check_message(place.offset <= bytes && place.bytes <= bytes - place.offset,
                  "a buffer lies outside of its block");
    std::byte* const buffer = static_cast<std::byte*>(block) + place.offset;
    if (i < message.inputs) {
      read.buffers.inputs.push_back(buffer);
    } else {
      read.buffers.outputs.push_back(buffer);
    }
    read.places.push_back(place);
  }
  read.extents.resize(message.extents);
  for (ImageRegion& extent : read.extents) take(extent);
  read.changes.resize(message.changes);
  for (WorkerParameterChange& change : read.changes) take(change);
}

LoadedNode& Served::node(const Json& ask) {
  const auto index = ask.at("node").get<std::size_t>();
  check_message(index < nodes_.size(), "there is no such node");
  return nodes_[index];
}

Json Served::open(std::uint64_t epoch, const Json& ask) {
  if (ask.at("version") != version()) {
    throw Error(ErrorKind::plugin_load, std::string("the worker's program is of ctxbroker ") +
                                            version() + ", and the host's library is of " +
                                            ask.at("version").get<std::string>() +
                                            "; install one version of both");
  }
  end_graph();  // of a set-up that has failed
  nodes_.clear();
  devices_ = {};
  broker_.reset();
  BrokerOptions options;
  options.host_name = ask.at("host").get<std::string>();
  options.host_version = ask.at("host_version").get<std::string>();
  if (ask.contains("driver")) {
    options.driver = parse_driver_choice(ask.at("driver").get<std::string>());
  }
  options.software_device = ask.at("software_device").get<std::string>();
  options.job_timeout = std::chrono::milliseconds(ask.at("job_timeout").get<std::int64_t>());
  options.end_timeout = std::chrono::milliseconds(ask.at("end_timeout").get<std::int64_t>());
  options.records = [host = host_](const Record& record) { pass_record(*host, record); };
  const auto policy = ask.at("policy").get<std::string>();
  if (!policy.empty()) options.policy = read_policy(policy);
  broker_.emplace(Broker::open(std::move(options)));
  if (ask.contains("timeline")) {
    broker_->stop_timeline();
    broker_->start_timeline({ask.at("timeline").get<std::size_t>()});
  }
  nodes_.reserve(ask.at("nodes").get<std::size_t>());
  epoch_ = epoch;
  const DriverInfo& driver = broker_->driver();
  Json devices = Json::array();
  for (const DeviceInfo& device : broker_->devices()) {
    devices.push_back({{"ordinal", device.ordinal},
                       {"name", device.name},
                       {"major", device.compute_major},
                       {"minor", device.compute_minor},
                       {"multiprocessors", device.multiprocessors},
                       {"memory_bytes", device.memory_bytes},
                       {"mps", device.mps},
                       {"memory_pools", device.memory_pools},
                       {"pinned_pools", device.pinned_pools}});
  }
  return {{"driver", to_string(driver.kind)},
          {"path", driver.path},
          {"version", driver.version},
          {"reason", driver.reason},
          {"devices", std::move(devices)}};
}

Json Served::create(const Json& ask) {
  nodes_.push_back(load_node(
      *broker_, {ask.at("name").get<std::string>(), ask.at("library").get<std::string>(),
                 ask.at("plugin").get<std::string>(), read_instance_options(ask.at("options"))}));
  const LoadedNode& made = nodes_.back();
  return {{"plugins", to_json(std::vector<PluginDescription>{made.instance.description()})},
          {"path", made.library.path().string()},
          {"has_state", made.instance.has_state()}};
}

// Restores what the plug-in was set to in the process before this one.
Json Served::restore(const Json& ask, std::span<const std::byte> state) {
  PluginInstance& instance = node(ask).instance;
  const auto& parameters = instance.description().parameters;
  const Json& values = ask.at("values");
  check_message(values.size() == parameters.size(), "the values are not those of the parameters");
  if (ask.at("has_state").get<bool>()) Access::of(instance).load_state(state);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].is_text()) {
      const auto text = values[i].get<std::string>();
      if (instance.text(parameters[i].id) != text) instance.set_text(parameters[i].id, text);
    } else {
      instance.set_parameter(parameters[i].id, read_value(values[i]));
    }
  }
  return {};
}

Json Served::question(const Json& ask) {
  const auto what = ask.at("what").get<std::string>();
  if (what == "input_regions" || what == "output_extents") {
    check_message(graph_.has_value(), "the graph is not active");
    const JobInfo job = read_job(ask.at("job"));
    Json regions = Json::array();
    for (const ImageRegion& region :
         what == "input_regions" ? graph_->input_regions(job) : graph_->output_extents(job)) {
      regions.push_back(to_json(region));
    }
    return regions;
  }
  if (what == "metrics") return json::parse(ctxbroker::to_json(broker_->metrics()), "the metrics");
  if (what == "poll") return {};  // each message does it
  const PluginInstance& instance = node(ask).instance;
  if (what == "from_text") {
    return to_json(
        instance.from_text(ask.at("id").get<std::string>(), ask.at("text").get<std::string>()));
  }
  if (what == "to_text") {
    return instance.to_text(ask.at("id").get<std::string>(), read_value(ask.at("value")));
  }
  check_message(what == "state", "the question is not known");
  const LeaseInfo lease = instance.lease();
  const Metrics m = instance.metrics();
  return {{"tenant_id", lease.tenant.value},
          {"tenant", lease.tenant_name},
          {"device", lease.device},
          {"asked", to_string(lease.asked)},
          {"granted", to_string(lease.granted.kind)},
          {"multiprocessors", lease.granted.multiprocessors},
          {"reason", lease.reason},
          {"generation", lease.generation},
          {"state", static_cast<int>(lease.state)},
          {"restart", instance.restart_requested()},
          {"figures",
           {m.jobs, m.launches, m.graph_jobs, m.late_jobs, m.memory_bytes, m.memory_peak_bytes,
            m.strikes}},
          {"device_seconds", m.device_seconds}};
}

Json Served::load_preset(const Json& ask, std::span<const std::byte> state) {
  PluginInstance& instance = node(ask).instance;
  const Preset preset = parse_preset(ask.at("preset").get<std::string>(), "from the host");
  std::optional<std::span<const std::byte>> given;
  if (ask.at("has_state").get<bool>()) given = state;
  Json remarks = Json::array();
  for (const PresetRemark& remark : detail::load_preset(instance, preset, given)) {
    remarks.push_back({static_cast<int>(remark.kind), remark.parameter, remark.text});
  }
  return {{"remarks", std::move(remarks)}, {"values", values_of(instance)}};
}

Json Served::save_preset(const Json& ask, States& states) {
  Preset preset = ctxbroker::save_preset(node(ask).instance);
  Json size;
  if (preset.state) size = add_state(states, std::move(*preset.state));
  preset.state.reset();
  return {{"preset", ctxbroker::to_json(preset)}, {"states", Json::array({size})}};
}

Json Served::set(const Json& ask) {
  PluginInstance& instance = node(ask).instance;
  const auto id = ask.at("id").get<std::string>();
  const Json& value = ask.at("value");
  if (value.is_string()) {
    instance.set_text(id, value.get<std::string>());
  } else {
    instance.set_parameter(id, read_value(value));
  }
  return {};
}

// All are active afterwards, or none.
Json Served::activate(const Json& ask) {
  end_graph();
  deactivate_all(nodes_);
  try {
    return connect(ask);
  } catch (const std::exception& error) {  // also one that says that there is no memory
    const auto* const known = dynamic_cast<const Error*>(&error);
    if (known != nullptr && known->kind() == ErrorKind::context_lost) throw;
    end_graph();
    deactivate_all(nodes_);
    throw;
  }
}

Json Served::connect(const Json& ask) {
  const Json& given = ask.at("sizes");
  ActivationSizes sizes;
  sizes.max_width = given.at(0).get<std::uint32_t>();
  sizes.max_height = given.at(1).get<std::uint32_t>();
  sizes.sample_rate = given.at(2).get<double>();
  sizes.realtime = given.at(3).get<bool>();
  GraphOptions options = read_graph_options(ask.at("graph"));
  if (ask.contains("done_board")) {
    options.on_done = teller(host_, ask.at("done_board").get<std::uint64_t>());
  }
  std::vector<GraphEdge> edges;
  for (const Json& edge : ask.at("edges")) {
    edges.push_back({edge.at(0).get<std::string>(), edge.at(1).get<std::string>()});
  }
  std::vector<GraphPort> inputs = read_ports(ask.at("inputs"));
  std::vector<GraphPort> outputs = read_ports(ask.at("outputs"));
  check_message(!edges.empty() || (inputs.size() == 1 && outputs.size() == 1),
                "a row has two ports");
  GraphDescription description =
      activate_all(nodes_, sizes, std::move(inputs), std::move(outputs), edges);
  devices_.describe(*broker_, whole<int>(ask.at("device")), description);
  graph_.emplace(*broker_, description, sizes, options);
  on_device_.clear();
  Json job_inputs = Json::array();
  for (const JobInput& input : graph_->job_inputs()) {
    job_inputs.push_back(Json::array({input.input, input.frame}));
    on_device_.push_back(description.inputs[input.input].on_device);
  }
  for (const GraphPort& port : description.outputs) on_device_.push_back(port.on_device);
  Json before = Json::array();
  for (std::size_t i = 0; i < nodes_.size(); ++i) before.push_back(graph_->latency_before(i));
  return {{"job_inputs", std::move(job_inputs)},
          {"latency", graph_->latency_frames()},
          {"memory", memory_of(broker_->metrics()) + GraphAccess::parts_of(*graph_).buffer_bytes},
          {"before", std::move(before)}};
}

// Before the leases of its plug-ins end.
void Served::end_graph() {
  graph_.reset();
  registered_.clear();
}

Json Served::deactivate(States& states) {
  end_graph();
  deactivate_all(nodes_);
  Json sizes = Json::array();
  for (LoadedNode& one : nodes_) {
    Json size;
    try {
      if (one.instance.has_state()) size = add_state(states, one.instance.save_state());
    } catch (const Error& error) {  // the host keeps the one before, and asked for none
      if (error.kind() == ErrorKind::context_lost) throw;
    }
    sizes.push_back(std::move(size));
  }
  return {{"states", std::move(sizes)}};
}

Json Served::lend_device(const Json& ask) {
  const Descriptor file(host_->take_descriptor(ask.at("file").get<std::uint64_t>()));
  check_message(file.get() >= 0, "the descriptor of the device memory has not come");
  devices_.lend(*broker_, ask.at("handle").get<std::uint64_t>(), file.get(),
                ask.at("bytes").get<std::uint64_t>(), whole<int>(ask.at("device")));
  return {};
}

Json Served::take_back_device(const Json& ask) {
  devices_.take_back(ask.at("handle").get<std::uint64_t>());
  return {};
}

Json Served::make_device(const Json& ask) {
  const Descriptor file =
      devices_.make(*broker_, ask.at("handle").get<std::uint64_t>(),
                    ask.at("bytes").get<std::uint64_t>(), whole<int>(ask.at("device")));
  check_message(host_->pass_descriptor(ask.at("file").get<std::uint64_t>(), file.get()) == CTXB_OK,
                "the device memory cannot be passed to the host");
  return {};
}

Json Served::write_timeline(const Json& ask) {
  const Descriptor file(host_->take_descriptor(ask.at("file").get<std::uint64_t>()));
  check_message(file.get() >= 0, "the timeline's file has not come");
  const TimelineSummary summary = broker_->write_timeline([&](std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(file.get(), text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        throw Error(ErrorKind::output_file, "the worker cannot write the timeline: " +
                                                std::generic_category().message(errno));
      }
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  });
  return Json::array({summary.spans, summary.dropped, summary.threads});
}

// Pinning takes some milliseconds, which the first block of a sound must not wait. To copy less
// than this once more takes a few microseconds.
constexpr std::uint64_t least_pinned = std::uint64_t{256} << 10;

// Pinned, so that CUDA copies from there and to there by itself. Any lease does, because all
// contexts may use the memory.
bool Served::is_registered(std::uint64_t block) {
  const auto known = registered_.find(block);
  if (known != registered_.end()) return static_cast<bool>(known->second);
  const auto& lease = Access::of(nodes_.front().instance).lease();
  void* memory = nullptr;
  std::uint64_t bytes = 0;
  if (!lease || host_->buffer(block, &memory, &bytes) != CTXB_OK || bytes < least_pinned) {
    return false;
  }
  RegisteredMemory& made = registered_[block];
  try {
    made = register_memory(lease, memory, bytes);
  } catch (const Error& error) {  // if CUDA has ended, the job says so
    Record record;
    record.severity = Severity::warning;
    record.tenant_name = "host";
    record.topic = "graph";
    record.text =
        std::string("jobs are copied once more, because shared memory cannot be pinned: ") +
        error.what();
    if (!std::exchange(is_failure_told_, true)) pass_record(*host_, record);
  }
  return static_cast<bool>(made);
}

// CUDA must not know the address when other memory may get it. If it keeps it, the block stays.
void Served::forget_block(std::uint64_t block) {
  const auto known = registered_.find(block);
  if (known == registered_.end()) return;
  const bool has_ended = known->second.reset();
  registered_.erase(known);
  check_message(has_ended, "work that does not end may still use the block");
}

// Finds the buffers that CUDA can copy by itself. After submit, the host may write into a lent
// input, and other jobs may use a lent output.
void Served::find_direct(std::uint32_t type, const JobMessage& message) {
  is_direct_.clear();
  if (GraphAccess::parts_of(*graph_).options.late != LateJobs::deliver)
    return;  // late work goes on
  for (const BufferPlace& place : table_.places) {
    const bool is_lent = place.block != 0;
    const bool is_free = !is_lent || type == graph_process;
    is_direct_.push_back(place.on_device == 0 && is_free &&
                         is_registered(is_lent ? place.block : message.block));
  }
}

// Work that may write into the host's memory later.
bool Served::hangs() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [](const LoadedNode& node) {
    return node.instance.lease().state == LeaseState::hung;
  });
}

void Served::run(std::uint32_t type, const JobMessage& message, JobReply& reply) {
  try {
    run_job(type, message, reply);
  } catch (const Error& error) {
    if (!hangs()) throw;
    throw Error(ErrorKind::context_lost, error.message(), error.origin());  // the process ends
  }
}

void Served::run_job(std::uint32_t type, const JobMessage& message, JobReply& reply) {
  check_message(graph_.has_value(), "the graph is not active");
  if (type == graph_is_done) {
    reply.outcome = graph_->is_done(message.job) ? 1 : 0;
    return;
  }
  if (type == graph_finish) {
    reply.outcome = static_cast<std::uint32_t>(graph_->finish(message.job));
    return;
  }
  job_.width = message.width;
  job_.height = message.height;
  job_.position = message.position;
  job_.sample_rate = message.sample_rate;
  job_.deadline_ns = message.deadline_ns;
  job_.discontinuity = message.discontinuity != 0;
  job_.region = message.region;
  events_.transport.reset();
  if (message.has_transport != 0) events_.transport = message.transport;
  read_table(*host_, message, on_device_, devices_, table_);
  job_.extents = table_.extents;
  events_.changes.clear();
  for (const WorkerParameterChange& change : table_.changes) {
    check_message(change.node < nodes_.size(), "a change is for no node");
    events_.changes.push_back({&nodes_[change.node].instance, change.parameter, change.offset,
                               change.value, change.ramp_frames, change.from});
  }
  find_direct(type, message);
  GraphAccess::set_direct(*graph_, is_direct_);
  reply.job = graph_->submit(table_.buffers, job_, events_);
  if (type == graph_process) reply.outcome = static_cast<std::uint32_t>(graph_->finish(reply.job));
}

}  // namespace ctxbroker::detail
