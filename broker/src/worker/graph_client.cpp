// SPDX-License-Identifier: Apache-2.0
// The set-up of a graph in a worker, now and after each end of its process.
#include "worker/graph_client.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin.h"
#include "ctxbroker/version.hpp"
#include "graph/done_callback.hpp"
#include "plugin/access.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/description_json.hpp"
#include "plugin/foreign_text.hpp"
#include "process/own_files.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::size_t most_job_inputs = 65536;

void check_given(bool good, const char* text) {
  if (!good) throw Error(ErrorKind::invalid_argument, text);
}

// A record of the broker in the worker, for the host's sink.
void pass_record(const RecordSink& sink, const std::string& worker, const void* data,
                 std::size_t bytes) {
  const Json json =
      json::parse(std::string_view(static_cast<const char*>(data), bytes), "a worker's record");
  constexpr std::array topics{"context", "driver", "fault", "gate",   "graph",  "lease",   "memory",
                              "module",  "plugin", "probe", "strike", "tenant", "timeline"};
  Record record;
  record.time = std::chrono::system_clock::now();
  const auto severity = json::whole_number(json.at("severity"), 3);
  record.severity = static_cast<Severity>(severity.value_or(3));
  record.tenant_name = take_message(json.at("tenant").get<std::string>().c_str());
  if (record.tenant_name.empty()) record.tenant_name = worker;
  record.topic = "worker";  // static texts only
  for (const char* topic : topics) {
    if (json.at("topic") == topic) record.topic = topic;
  }
  record.text =
      "in worker \"" + worker + "\": " + take_message(json.at("text").get<std::string>().c_str());
  sink(record);
}

// A stand-by's end is not the graph's: records say so, and on_exit does not hear of it.
WorkerOptions worker_options(const WorkerGraphOptions& given,
                             const std::shared_ptr<std::atomic<bool>>& in_charge,
                             const std::shared_ptr<DoneJobs>& done_jobs) {
  WorkerOptions options = given.worker;
  check_given(
      options.module.empty() && !options.on_notification,
      "WorkerGraphOptions::worker has a module or on_notification, which the graph sets itself");
  if (options.name.empty()) options.name = "graph";
  if (options.program.empty()) options.program = beside_this_library("ctxbroker/ctxbroker-worker");
  options.message_bytes = 4096;
  options.calls_at_once = 1;
  options.threads = 1;
  if (given.worker.records) {
    options.records = [sink = given.worker.records, in_charge](const Record& record) {
      Record named = record;
      if (!*in_charge) named.text = "stand-by: " + named.text;
      sink(named);
    };
  }
  options.on_exit = [on_exit = given.worker.on_exit, in_charge, done_jobs](const WorkerExit& exit) {
    done_jobs->end();
    if (on_exit && *in_charge) on_exit(exit);
  };
  options.on_notification = [sink = options.records, worker = options.name, done_jobs](
                                std::uint32_t type, const void* data, std::size_t bytes) {
    done_jobs->look();
    if (sink && type == record_notification) pass_record(sink, worker, data, bytes);
  };
  return options;
}

std::function<void(std::uint64_t)> on_done_of(const WorkerGraphOptions& given) {
  return without_exceptions(given.graph.on_done, [sink = given.worker.records,
                                                  worker =
                                                      given.worker.name](const std::string& what) {
    if (sink)
      sink({std::chrono::system_clock::now(), Severity::error, host_tenant, worker, "graph", what});
  });
}

// Completes the options with what holds for each process. The host may change its folder before the
// next one starts.
WorkerGraphOptions completed(WorkerGraphOptions options) {
  const BrokerImpl* const broker =
      options.broker != nullptr ? &Access::of(*options.broker) : nullptr;
  const BrokerOptions unnamed;
  if (options.host_name.empty()) {
    options.host_name = broker != nullptr ? broker->host_name() : unnamed.host_name;
  }
  if (options.host_version.empty()) {
    options.host_version = broker != nullptr ? broker->host_version() : unnamed.host_version;
  }
  for (auto* path : {&options.worker.program, &options.software_device, &options.policy}) {
    if (!path->empty()) *path = std::filesystem::absolute(*path);
  }
  return options;
}

}  // namespace

WorkerGraphDescription checked(WorkerGraphDescription description,
                               const WorkerGraphOptions& options) {
  check_given(!description.nodes.empty(), "WorkerGraphDescription::nodes is empty");
  check_given(
      !description.edges.empty() ||
          (description.inputs.size() == 1 && description.outputs.size() == 1),
      "WorkerGraphDescription has no edges, so it is a row, which has one input and one output");
  const GraphOptions& graph = options.graph;
  check_given(
      graph.jobs_waiting == 0,
      "GraphOptions::jobs_waiting is set, and no job waits in a graph in a worker; set it to 0");
  check_given(graph.jobs_in_flight >= 1 && graph.jobs_in_flight <= 64,
              "GraphOptions::jobs_in_flight must be 1 to 64");
  check_given(!options.retry || !options.dry_while_away,
              "WorkerGraphOptions::retry and dry_while_away cannot both be set; choose one");
  check_given(options.job_timeout.count() >= 0 && options.end_timeout.count() >= 0,
              "WorkerGraphOptions::job_timeout and end_timeout must not be negative");
  std::size_t number = 0;
  for (WorkerNode& node : description.nodes) {
    node.library = std::filesystem::absolute(node.library);
    if (node.name.empty()) node.name = "node" + std::to_string(++number);
  }
  return description;
}

void check_activation(const WorkerGraphDescription& graph, Media media,
                      const ActivationSizes& sizes, const std::vector<GraphPort>& inputs,
                      const std::vector<GraphPort>& outputs) {
  const auto same_names = [](const std::vector<GraphPort>& a, const std::vector<GraphPort>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const GraphPort& x, const GraphPort& y) { return x.name == y.name; });
  };
  check_given(same_names(inputs, graph.inputs) && same_names(outputs, graph.outputs),
              "graph: activate got other ports than the graph has");
  check_given(sizes.max_width != 0 && sizes.max_height != 0,
              "graph: ActivationSizes::max_width and max_height must be at least 1");
  check_given(std::isfinite(sizes.sample_rate) && sizes.sample_rate >= 0,
              "graph: ActivationSizes::sample_rate must be a finite number of Hz, 0 for images");
  const auto has_other_samples = [&](const GraphPort& port) {
    return sizes.sample_rate > 0 && port.samples != SampleType::float32;
  };
  check_given(std::none_of(inputs.begin(), inputs.end(), has_other_samples) &&
                  std::none_of(outputs.begin(), outputs.end(), has_other_samples),
              "graph: a port has samples of another type than float32, which audio has");
  // The sizes of the host's buffers follow from its media, so the worker does not decide it.
  const bool is_audio = sizes.sample_rate > 0;
  if (is_audio == (media == Media::audio)) return;
  throw Error(ErrorKind::invalid_argument,
              std::string("graph: ActivationSizes::sample_rate is ") +
                  (is_audio ? "that of audio, but the plug-ins are for images, so it must be 0"
                            : "0, but the plug-ins are for audio, which needs it in Hz"));
}

GraphClient::GraphClient(WorkerGraphDescription description, WorkerGraphOptions options, Role role)
    : description_(checked(std::move(description), options)),
      options_(completed(std::move(options))),
      in_charge_(std::make_shared<std::atomic<bool>>(role == Role::in_charge)),
      done_jobs_(std::make_shared<DoneJobs>(on_done_of(options_))),
      worker_(worker_options(options_, in_charge_, done_jobs_)),
      lent_devices_(std::make_shared<LentDevices>(*this)),
      flights_(options_.graph.jobs_in_flight),
      outcomes_(2 * std::size_t{options_.graph.jobs_in_flight}, JobOutcome::forgotten) {
  set_up();
}

const GraphClient::Node& GraphClient::at(std::size_t node) const {
  if (node < nodes_.size()) return nodes_[node];
  throw Error(ErrorKind::invalid_argument, "graph: there is no node " + std::to_string(node));
}

// ---- The process -----------------------------------------------------------------------------

void GraphClient::refuse(const std::string& why) {
  worker_.impl_->refuse(why);
}

// A process that has just started does not know this graph. If none has ended, it is a lie.
void GraphClient::stale() {
  set_up_ = false;
  if (worker_.exits() == exits_) refuse("it answered as a process that has just started");
  const auto end = worker_.last_exit();
  throw Error(ErrorKind::context_lost,
              end ? end->text + "; " + end->next
                  : "the worker has started again; the next call sets it up");
}

// The process before can still be leaving, and write into its blocks.
void GraphClient::drop_blocks() noexcept {
  document_ = {};
  done_board_ = {};
  lent_blocks_ = {};
  for (Flight& flight : flights_) flight.block = {};
}

void GraphClient::start_process() {
  ++epoch_;
  drop_blocks();
  worker_.start();  // also when the last start has failed
  exits_ = worker_.exits();
  process_ = worker_.impl_->process();
  open();
  for (std::size_t i = 0; i < description_.nodes.size(); ++i) create(i);
}

void GraphClient::open() {
  Json question{{"version", version()},
                {"host", options_.host_name},
                {"host_version", options_.host_version},
                {"software_device", options_.software_device.string()},
                {"policy", options_.policy.string()},
                {"job_timeout", options_.job_timeout.count()},
                {"end_timeout", options_.end_timeout.count()},
                {"nodes", description_.nodes.size()}};
  if (options_.timeline) question["timeline"] = options_.timeline->memory_bytes;
  if (options_.driver) question["driver"] = to_string(*options_.driver);
  const Json answer = ask(graph_open, question);
  read([&] {
    DriverInfo driver;
    const auto kind = parse_driver_choice(answer.at("driver").get<std::string>());
    driver.kind = kind.value_or(DriverChoice::software);
    driver.path = take_message(answer.at("path").get<std::string>().c_str());
    driver.version = whole<int>(answer.at("version"));
    driver.reason = take_message(answer.at("reason").get<std::string>().c_str());
    std::vector<DeviceInfo> devices;
    for (const Json& one : answer.at("devices")) {
      devices.push_back({whole<int>(one.at("ordinal")),
                         take_message(one.at("name").get<std::string>().c_str()),
                         whole<int>(one.at("major")), whole<int>(one.at("minor")),
                         whole<int>(one.at("multiprocessors")),
                         whole<std::uint64_t>(one.at("memory_bytes")), one.at("mps").get<bool>(),
                         one.at("memory_pools").get<bool>(), one.at("pinned_pools").get<bool>()});
    }
    if (devices.empty()) throw json::DocumentError("the worker has no device");
    driver_ = std::move(driver);
    devices_ = std::move(devices);
  });
}

void GraphClient::create(std::size_t index) {
  const WorkerNode& node = description_.nodes[index];
  const Json answer = ask(graph_create, {{"name", node.name},
                                         {"library", node.library.string()},
                                         {"plugin", node.plugin},
                                         {"options", to_json(node.options)}});
  Node made = read([&] {
    Node one;
    const auto path = take_message(answer.at("path").get<std::string>().c_str());
    one.described = dumped(answer);
    one.description =
        read_plugins(answer.at("plugins"), {"the worker's answer", "$.plugins"}, path).front();
    one.has_state = answer.at("has_state").get<bool>();
    const PluginDescription& said = one.description;
    if (!node.plugin.empty() && node.plugin != said.id && node.plugin != said.short_name) {
      throw json::DocumentError("it is of plug-in " + said.id + ", not of " + node.plugin);
    }
    return one;
  });
  if (index < nodes_.size()) return check_unchanged(index, made);
  for (const ParameterDescription& parameter : made.description.parameters) {
    made.values.push_back(parameter.default_value);
    made.texts.push_back(parameter.default_text);
  }
  nodes_.push_back(std::move(made));
}

void GraphClient::check_unchanged(std::size_t index, const Node& made) const {
  if (made.described == nodes_[index].described) return;
  throw Error(ErrorKind::plugin_load,
              "library \"" + description_.nodes[index].library.string() +
                  "\" has changed since the graph was made; make a new graph");
}

// Sets a plug-in of a new process to what the one before had.
void GraphClient::restore(std::size_t index) {
  const Node& known = nodes_[index];
  Json values = Json::array();
  for (std::size_t i = 0; i < known.values.size(); ++i) {
    values.push_back(known.description.parameters[i].is_text() ? Json(known.texts[i])
                                                               : to_json(known.values[i]));
  }
  const Json question{
      {"node", index}, {"values", std::move(values)}, {"has_state", known.state != nullptr}};
  ask(graph_restore, question, bytes_of(known.state));
}

// ---- Activation ------------------------------------------------------------------------------

void GraphClient::check_active() const {
  if (!active_) throw Error(ErrorKind::wrong_state, "graph: it is not active; call activate first");
}

void GraphClient::activate(const ActivationSizes& sizes, std::vector<GraphPort> inputs,
                           std::vector<GraphPort> outputs) {
  check_activation(description_, nodes_.front().description.media, sizes, inputs, outputs);
  check_given(!options_.dry_while_away || (!any_on_device(inputs) && !any_on_device(outputs)),
              "WorkerGraphOptions::dry_while_away is set, and a port is on the device; clear "
              "GraphPort::on_device or dry_while_away");
  deactivate();
  set_up();
  regions_of_ = {};
  sizes_ = sizes;
  description_.inputs.swap(inputs);
  description_.outputs.swap(outputs);
  try {
    send_activation();
  } catch (...) {
    description_.inputs.swap(inputs);
    description_.outputs.swap(outputs);
    throw;
  }
  active_ = true;
  ++settings_;
  stand_by_fits_ = fits_stand_by();
  if (stand_by_fits_) prepare_stand_by();
}

void GraphClient::send_activation() {
  Json edges = Json::array();
  for (const GraphEdge& edge : description_.edges) {
    edges.push_back(Json::array({edge.from, edge.to}));
  }
  Json question{{"sizes", Json::array({sizes_.max_width, sizes_.max_height, sizes_.sample_rate,
                                       sizes_.realtime})},
                {"graph", to_json(options_.graph)},
                {"inputs", to_json(description_.inputs)},
                {"outputs", to_json(description_.outputs)},
                {"device", description_.device},
                {"edges", std::move(edges)}};
  if (done_jobs_->is_wanted()) {
    if (done_board_.bytes() == 0) {
      done_board_ =
          WorkerBuffer(worker_.impl_->lend(sizeof(DoneBoard), WorkerImpl::LentTo::this_process));
    }
    question["done_board"] = done_board_.handle();
  }
  const Json answer = ask(graph_activate, question);
  done_jobs_->listen(done_board_.block_, has_dry_sound());
  std::vector<JobInput> inputs;
  std::uint64_t latency = 0;
  std::vector<std::uint64_t> before;
  read([&] {
    // A host may take the order for granted, and has buffers of these sizes in it.
    JobInput last{0, std::numeric_limits<int>::min()};
    for (const Json& one : answer.at("job_inputs")) {
      const JobInput next{whole<std::size_t>(one.at(0)), whole<int>(one.at(1))};
      const bool same = next.input == last.input;
      const int farthest = CTXB_FRAMES_MAX * static_cast<int>(nodes_.size());
      if (next.input >= description_.inputs.size() || inputs.size() == most_job_inputs ||
          next.frame < -farthest || next.frame > farthest ||
          !(same ? next.frame > last.frame : !inputs.empty() && next.input == last.input + 1)) {
        throw json::DocumentError("a job has an input that the graph has not, or not there");
      }
      inputs.push_back(last = next);
    }
    if (inputs.empty() != description_.inputs.empty() ||
        (!inputs.empty() && last.input + 1 != description_.inputs.size())) {
      throw json::DocumentError("a job lacks an input");
    }
    const auto latency_of = [&](const Json& one) {
      const auto frames = json::whole_number(one, nodes_.size() * std::uint64_t{CTXB_LATENCY_MAX});
      if (!frames) throw json::DocumentError("a latency is more than the plug-ins may have");
      return *frames;
    };
    for (const Json& one : answer.at("before")) before.push_back(latency_of(one));
    if (before.size() != nodes_.size()) throw json::DocumentError("latencies are missing");
    latency = latency_of(answer.at("latency"));
    memory_ = whole<std::uint64_t>(answer.at("memory"));
  });
  take_activation(std::move(inputs), latency, std::move(before));
}

void GraphClient::take_activation(std::vector<JobInput> inputs, std::uint64_t latency,
                                  std::vector<std::uint64_t> before) {
  if (active_ && !std::equal(inputs.begin(), inputs.end(), job_inputs_.begin(), job_inputs_.end(),
                             [](const JobInput& a, const JobInput& b) {
                               return a.input == b.input && a.frame == b.frame;
                             })) {  // the host's buffers are not for these
    throw Error(ErrorKind::wrong_state,
                "graph: since the worker's restart, the plug-ins need other frames; call activate "
                "again");
  }
  result_bytes_.clear();
  for (std::size_t i = 0; i < description_.outputs.size(); ++i) {
    result_bytes_.push_back(find_result_bytes(i));
  }
  if (!active_ || latency != latency_) dry_lines_ = make_dry_lines(latency);
  job_inputs_ = std::move(inputs);
  latency_ = latency;
  latency_before_ = std::move(before);
}

// The states are kept, because a plug-in cannot be asked for its state while it is active. A graph
// that was not active has no new ones.
void GraphClient::deactivate() {
  while (is_set_up() && oldest() != nullptr) {
    try {
      finish_oldest();
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): nobody waits for these jobs any more
    }
  }
  const bool was_active = std::exchange(active_, false);
  if (was_active) ++settings_;
  if (std::exchange(stand_by_fits_, false)) prepare_stand_by();  // which is deactivated, too
  give_up_jobs();
  relays_.clear();
  if (!is_set_up() || !was_active) return;
  const Answer answer = exchange(graph_deactivate, Json::object(), {}, States::some);
  const std::vector<State> states = take_states(answer, nodes_.size());
  done_jobs_->look();
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (states[i] && nodes_[i].has_state) nodes_[i].state = states[i];
  }
}

}  // namespace ctxbroker::detail
