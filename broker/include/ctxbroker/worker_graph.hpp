// SPDX-License-Identifier: Apache-2.0
/// @file
/// A graph of plug-ins in a worker process. If a plug-in crashes, hangs or ends CUDA, the worker
/// ends and the host goes on. docs/workers.md says what that costs and what it protects from.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/export.hpp"
#include "ctxbroker/graph.hpp"
#include "ctxbroker/preset.hpp"
#include "ctxbroker/worker.hpp"
#include "ctxbroker/worker_device_buffer.hpp"
#include "ctxbroker/worker_grouping.hpp"

namespace ctxbroker {

class DeviceMemory;
class HostMemory;

namespace detail {
class GroupedGraph;
}

/// A plug-in of a graph in a worker. Unless the plug-in is in the host's process, the host does not
/// load its library.
struct WorkerNode {
  std::string name;               ///< As the edges call it: "blur".
  std::filesystem::path library;  ///< The plug-in library's file.
  /// The plug-in's id or short name. Empty: the only plug-in of the library.
  std::string plugin{};
  InstanceOptions options{};  ///< Its device, lease and limits in its process.
  /// Which plug-ins it shares a process with. Not given: the policy decides
  /// (PluginPolicy::process), then WorkerGraphOptions::grouping.
  std::optional<WorkerGrouping> grouping{};
};

/// What a graph in a worker is made of.
struct WorkerGraphDescription {
  /// As GraphDescription::inputs. If GraphPort::on_device is set, the input's buffers lie in device
  /// memory from WorkerGraph::lend, and the graph is in one process.
  std::vector<GraphPort> inputs;
  std::vector<GraphPort> outputs;  ///< Likewise.
  std::vector<WorkerNode> nodes;   ///< At least one, all for the same media.
  /// The connections. None: the nodes are in a row, from the one input through each one's first
  /// input and first output to the one output.
  std::vector<GraphEdge> edges{};
  int device = 0;  ///< CUDA device ordinal of the memory for inputs and outputs on the device.
};

/// How a graph in a worker runs.
struct WorkerGraphOptions {
  /// The worker: its name, limits, timeouts and crash budget. `call_timeout` is how long a job may
  /// take, and `start_timeout` how long loading or activating may take. Leave out `module` and
  /// `on_notification`: the graph sets them, and the numbers of calls and threads. A `program` of
  /// the host's own must call ctxb_worker_serve with a null module. `records` also takes the
  /// records of the broker in the worker. Variables that plug-ins read go into `environment`.
  WorkerOptions worker{};
  /// Which plug-ins share a process. `worker` and the options below apply to each process
  /// separately. If there are several, each has the worker's name and the names of its first nodes:
  /// "graph: 1 exposure, 2 blur". A graph without edges names its nodes like this. `on_exit` can
  /// run on several threads at once.
  WorkerGrouping grouping = WorkerGrouping::together;
  /// The host's broker, for plug-ins with WorkerGrouping::in_host. Borrowed; it must outlive the
  /// graph. Plug-ins there use its driver, policy, timeouts and timeline, and not those below.
  /// Null: the constructor throws `invalid_argument` if a plug-in is to be in the host, and
  /// `in-host` in the policy has no effect.
  Broker* broker = nullptr;
  /// As BrokerOptions::host_name and host_version, for plug-ins in workers. Empty: those of
  /// `broker`, or without one BrokerOptions' own defaults.
  std::string host_name{};
  std::string host_version{};  ///< Likewise.
  /// How the jobs run. Leave out `jobs_waiting`. With several processes, and for pictures with
  /// dry_while_away, `late` must be LateJobs::deliver. `submit` then returns when all processes but
  /// the last have done the job, and the outputs of these processes are complete. It also waits for
  /// the last process if an output cannot be written straight into the host's buffer. If the last
  /// process reads pictures on the device, `submit` first waits until it has done the job before.
  ///
  /// `on_done` is called in the host's process, on a thread that the library has made for this
  /// worker or in a call of the graph. If the last plug-ins are in the host's process, a thread of
  /// the driver's calls it, too. It is not called for a job that fails, and not for jobs that are
  /// lost when their process ends: `worker.on_exit` says so. A kernel that faults or never ends is
  /// noticed only when a call asks the worker. So wait with a time limit, and then call finish.
  ///
  /// With dry_while_away, `on_done` is called for each job whose outcome is dry. With several
  /// processes, and for pictures with dry_while_away, it can also name a job whose submit then
  /// throws or begins it anew. It is copied for each process that is prepared on another thread, so
  /// keep its state outside of the function object. If it is set, each job costs the worker one
  /// more system call.
  GraphOptions graph{};
  std::optional<DriverChoice> driver{};     ///< As BrokerOptions::driver, in the worker.
  std::filesystem::path software_device{};  ///< As BrokerOptions::software_device.
  /// A policy file, which each worker reads. The graph reads `process` in it. May be empty.
  std::filesystem::path policy{};
  std::chrono::milliseconds job_timeout{0};     ///< As BrokerOptions::job_timeout.
  std::chrono::milliseconds end_timeout{2000};  ///< As BrokerOptions::end_timeout.
  /// Records a timeline in each process from its start. Not given: none.
  std::optional<TimelineOptions> timeline{};
  /// Keeps a second process with the same plug-ins, which takes over when the first one ends. It
  /// costs the memory of the host and of the device that plug-ins take before they are activated,
  /// with CUDA's own context. The destructor waits for a stand-by that is still starting.
  bool stand_by = false;
  /// With stand_by: the stand-by is activated as well if the process that it stands by for holds at
  /// most this many bytes of device memory after activate. It then takes over sooner. What plug-ins
  /// hold and the buffers of jobs count. CUDA's own context and the pictures between processes do
  /// not. If the stand-by cannot be activated, a record says so, and it is activated when it takes
  /// over. 0: it is always activated when it takes over.
  std::uint64_t stand_by_memory = 0;
  /// If the worker ends during a call of WorkerGraph::process, the call does its job once more in
  /// the next process. This holds for jobs without a region and without lent inputs (those on the
  /// device are lent), when no other job is in flight. A job that WorkerGraph::kill has stopped is
  /// not repeated. With several processes, a block of audio is repeated in the process that has
  /// lost it, and a picture in all of them, where it is a discontinuity.
  bool retry = false;
  /// No job waits for a process to start. A job that is in the process when it ends, and each job
  /// until the next process is ready, has the outcome JobOutcome::dry instead of an error. Sound is
  /// a copy of the first input with the same format, delayed by latency_frames. A picture is a copy
  /// of such an input, or transparent black. With several processes, only the plug-ins of the
  /// process that is away are left out. The next process starts on another thread. When it is
  /// ready, the next job runs in it, which is a discontinuity for its plug-ins.
  ///
  /// A picture whose input is lent, or which was submitted to the last process before it ended,
  /// throws `context_lost` all the same. The job that is in the process when it ends waits until
  /// the host knows of the exit. If a plug-in hangs, this takes `worker.call_timeout`, so set that
  /// to the length of a few jobs. While the worker is quarantined, all jobs are dry until pardon.
  /// After a failed start, they are dry until pardon or until another function starts the process.
  /// The destructor waits for a process that is starting.
  ///
  /// You cannot combine it with `retry`, or with inputs or outputs on the device. docs/workers.md
  /// says the rest under "Sound that goes on" and "Pictures that go on".
  bool dry_while_away = false;
};

/// As ParameterChange, for a graph in a worker.
struct WorkerParameterChange {
  std::size_t node = 0;           ///< Its position in WorkerGraphDescription::nodes.
  std::size_t parameter = 0;      ///< This and the rest: as in ParameterChange.
  std::int64_t offset = 0;        ///< Frame of the block.
  double value = 0;               ///< The new value, or the one at the ramp's end.
  std::uint32_t ramp_frames = 0;  ///< How long the ramp takes; 0: a jump.
  double from = 0;                ///< The value at the ramp's beginning.
};

/// As JobEvents, for a graph in a worker.
struct WorkerJobEvents {
  std::vector<WorkerParameterChange> changes;  ///< In the order of their offsets.
  std::optional<Transport> transport;          ///< Where the song is.
};

/// What the worker says about one of its plug-ins.
struct WorkerNodeState {
  LeaseInfo lease;                 ///< As the worker's broker says it, without `context`.
  Metrics metrics;                 ///< Since the worker's start.
  bool restart_requested = false;  ///< As PluginInstance::restart_requested.
};

/// Plug-ins that are loaded, connected and run in a worker process with a broker of its own, or in
/// several (WorkerGraphOptions::grouping). The host's own process uses no GPU for them, unless the
/// host chooses WorkerGrouping::in_host for some.
///
/// Samples are copied into memory that both processes share. Buffers from lend are there already,
/// and are not copied. A host whose frames are in device memory lends that memory, and sets
/// GraphPort::on_device. A job is one message and one answer. With several processes, the host
/// sends each of them one message for a block of audio, and four for a picture. With
/// dry_while_away, one process gets four, too.
///
/// If a process ends, the call that was in it throws `context_lost` (but see dry_while_away). The
/// text names the plug-in and its function if one was running, and WorkerExit::running has them
/// too. The next call goes on in a new process, or in the stand-by, with all parameters, and with
/// each plug-in's own state as it was at the last load_preset, save_preset or deactivate. An
/// activate of a graph that is active already counts as a deactivate. Without such a call, a
/// plug-in has the state of a new instance, and a record says so. The first job there is a
/// discontinuity. A worker that ends too often is quarantined: see WorkerOptions::crash_limit and
/// pardon.
///
/// Functions that Graph and PluginInstance also have do the same here, and throw the same errors.
/// Functions that ask the process also throw what Worker::call throws. The host checks what comes
/// from the process, and ends a process whose answer cannot be right.
///
/// Move-only; a moved-from graph can only be destroyed or assigned to.
///
/// Threads: any thread may call it, but only one at a time. With plug-ins in the host's process,
/// use the thread that opened the broker, or serialise the calls with it. Any thread can call
/// state, reason, last_exit, exits, process_id, kill and pardon at any time, also during another
/// call, but not while the graph is moved or destroyed. Name the process by any of its nodes. The
/// host's own process is always `ready`, and never ends here.
class CTXB_API WorkerGraph {
 public:
  /// Starts the worker, loads the libraries and creates the plug-ins there.
  ///
  /// @throws Error  `invalid_argument`, which names the option; what Broker::open, Broker::load and
  ///                Broker::create throw; `plugin_load` when the process cannot start.
  explicit WorkerGraph(WorkerGraphDescription description, const WorkerGraphOptions& options = {});

  /// Moves a graph of this process into a worker: the plug-ins, the edges, the parameters and the
  /// states. A host calls it to go on after a kernel's fault has ended CUDA in its own process
  /// (LeaseState::ended), or at any other time, for example with a plug-in that it does not trust
  /// any more. It starts a process, which takes some hundred milliseconds. The new graph is active
  /// for the same sizes.
  ///
  /// The old graph ends, and its instances are deactivated, so other graphs of these instances end
  /// too. The host destroys the instances when it likes. What a plug-in remembers of earlier jobs
  /// is lost, so the broker marks the first job as a discontinuity. If a plug-in cannot save its
  /// state any more, or cannot load it in the worker, a record says so, and the plug-in begins with
  /// the state of a new instance. After a fault, a saved state is as good as the plug-in's own
  /// checks.
  ///
  /// Each plug-in has the device, the kind of lease and the memory budget that it had here,
  /// whatever a policy in the worker says.
  ///
  /// Call it on the thread that opened the broker, or serialise it with that thread. No other
  /// thread uses the graph or its instances meanwhile.
  ///
  /// @param graph    the host gives up its unfinished jobs. All its inputs and outputs are in host
  ///                 memory, and each instance is in one node. Afterwards it is moved from.
  /// @param options  as above. `options.graph` does not count: the old graph's options do, without
  ///                 `jobs_waiting`. Jobs are numbered from 1 again, also for `on_done`. If
  ///                 `options.driver`, `host_name` or `host_version` is not set, it is that of the
  ///                 graph's broker. Set `policy`, `job_timeout` and the rest again, because the
  ///                 broker's other options are not taken over.
  /// @param of_nodes  the grouping of each node. Empty: the policy and `options.grouping` decide.
  /// @throws Error  before the move: `wrong_state` for a graph that was moved from,
  ///                `invalid_argument` for a graph that cannot move, and what the constructor
  ///                throws. The old graph is then as it was. During the move: what load_preset and
  ///                activate throw. The old graph is then moved from. Its instances keep their
  ///                parameters, and can be activated again unless CUDA has ended.
  [[nodiscard]] static WorkerGraph from(Graph&& graph, WorkerGraphOptions options = {},
                                        const std::vector<WorkerGrouping>& of_nodes = {});
  /// Moves the plug-ins of a graph to other processes, with their parameters and states: to find a
  /// culprit among those that share a process, to give up a process that is not needed any more, or
  /// to take plug-ins out of the host's process after a kernel's fault. If the old graph is active,
  /// the new one is active for the same sizes, inputs and outputs. What a plug-in remembers of
  /// earlier jobs is lost, so the first job is a discontinuity.
  ///
  /// The new processes start before the old ones end. A plug-in whose process has ended moves with
  /// the state that was seen last.
  ///
  /// @param graph     the host gives up its unfinished jobs. Afterwards it is moved from.
  /// @param options   for the new graph. None of the old graph's options is taken over.
  /// @param of_nodes  the grouping of each node. Empty: WorkerNode::grouping is as it was.
  /// @throws Error  `wrong_state` for a graph that was moved from; what the constructor,
  ///                load_preset and activate throw. After an error, the old graph still holds its
  ///                plug-ins and their parameters. It may not be active any more.
  [[nodiscard]] static WorkerGraph from(WorkerGraph&& graph, const WorkerGraphOptions& options,
                                        const std::vector<WorkerGrouping>& of_nodes = {});
  WorkerGraph(WorkerGraph&&) noexcept;
  WorkerGraph& operator=(WorkerGraph&&) noexcept;
  /// Destroys the plug-ins and ends the worker, as Worker::close does. Keep the outputs of jobs in
  /// flight until it returns.
  ~WorkerGraph();

  /// The driver in the worker, or in the first one of several. It lives as long as the graph.
  [[nodiscard]] const DriverInfo& driver() const&;
  [[nodiscard]] DriverInfo driver() && { return driver(); }
  /// The driver's devices.
  [[nodiscard]] const std::vector<DeviceInfo>& devices() const&;
  [[nodiscard]] std::vector<DeviceInfo> devices() && { return devices(); }
  /// The graph's inputs, as the last activate or the description has them.
  [[nodiscard]] const std::vector<GraphPort>& inputs() const&;
  [[nodiscard]] std::vector<GraphPort> inputs() && { return inputs(); }
  [[nodiscard]] const std::vector<GraphPort>& outputs() const&;  ///< Likewise, the outputs.
  [[nodiscard]] std::vector<GraphPort> outputs() && { return outputs(); }
  /// A plug-in's descriptor, as the worker says it. It lives as long as the graph. The results of
  /// an analyser have as many bytes as its port's `result_bytes`, so look there before you make a
  /// buffer, even if you know the plug-in.
  [[nodiscard]] const PluginDescription& description(std::size_t node) const&;
  [[nodiscard]] PluginDescription description(std::size_t node) && { return description(node); }
  /// Asks the worker for a plug-in's lease and figures.
  [[nodiscard]] WorkerNodeState node_state(std::size_t node);
  /// As Broker::metrics, for the broker in the process of a node, since that process's start.
  [[nodiscard]] BrokerMetrics metrics(std::size_t node = 0);
  /// As Broker::poll, for the broker in the worker. Every function that asks the process polls too,
  /// so this one is for times without jobs. Without a process, it does nothing.
  void poll();
  /// As Broker::write_timeline: what the present process of a node has recorded since its start.
  /// See WorkerGraphOptions::timeline.
  TimelineSummary write_timeline(const TimelineSink& sink, std::size_t node = 0);
  /// The same, to a file.
  TimelineSummary write_timeline(const std::filesystem::path& path, std::size_t node = 0);

  /// Sets a parameter. While the graph is active, this is allowed for numbers that are automatable
  /// only.
  void set_parameter(std::size_t node, std::string_view id, const ParameterValue& value);
  /// Sets a parameter that is text.
  void set_text(std::size_t node, std::string_view id, std::string_view text);
  /// Returns a parameter's value, which the host's side keeps. No message is sent.
  [[nodiscard]] ParameterValue parameter_value(std::size_t node, std::string_view id) const;
  /// Returns the text of a parameter that is text. No message is sent.
  [[nodiscard]] std::string text(std::size_t node, std::string_view id) const;
  /// Turns text into a value of the parameter, as the plug-in reads it.
  [[nodiscard]] ParameterValue from_text(std::size_t node, std::string_view id,
                                         std::string_view text);
  /// Prints a value of the parameter for people, as the plug-in does it.
  [[nodiscard]] std::string to_text(std::size_t node, std::string_view id,
                                    const ParameterValue& value);
  /// Returns a plug-in's parameters and state. If the plug-in has a state, the graph must not be
  /// active.
  [[nodiscard]] Preset save_preset(std::size_t node);
  /// Sets all parameters and the state of a plug-in.
  std::vector<PresetRemark> load_preset(std::size_t node, const Preset& preset);

  /// Activates all plug-ins and connects them. If the graph is active, it is deactivated first, and
  /// the plug-ins' states are kept for a restart. In a long session, this is the way to keep them.
  ///
  /// @param sizes  the largest jobs to come.
  /// @throws Error  also `invalid_argument` when sample_rate does not suit the plug-ins' media.
  void activate(const ActivationSizes& sizes);
  /// The same with other formats of the inputs and outputs, which must have the same names.
  void activate(const ActivationSizes& sizes, std::vector<GraphPort> inputs,
                std::vector<GraphPort> outputs);
  /// Waits for the jobs in flight, and deactivates all plug-ins.
  void deactivate();
  /// True from the end of activate until deactivate. A restart of the worker does not change it.
  [[nodiscard]] bool active() const noexcept;

  /// As Graph::job_inputs. Valid until the next activate. If the plug-ins need other frames after a
  /// restart, calls throw `wrong_state` until then.
  [[nodiscard]] const std::vector<JobInput>& job_inputs() const&;
  [[nodiscard]] std::vector<JobInput> job_inputs() && { return job_inputs(); }
  /// As Graph::output_extents.
  [[nodiscard]] std::vector<ImageRegion> output_extents(const JobInfo& job);
  /// As Graph::input_regions. Ask for the regions of a job right before you submit it.
  [[nodiscard]] std::vector<ImageRegion> input_regions(const JobInfo& job);
  /// As Graph::latency_frames. With several processes, it can be more than with one, because a
  /// process begins when all that it reads is there.
  [[nodiscard]] std::uint64_t latency_frames() const;
  /// As Graph::latency_before.
  [[nodiscard]] std::uint64_t latency_before(std::size_t node) const;

  /// Lends memory for the buffers of jobs. The host does not copy a buffer that lies in it: the
  /// worker pins a block of 256 KiB or more, and CUDA copies an input from there and an output to
  /// there. Every later process gets the block with its contents. Only the graph that has lent the
  /// block saves the copies. With several processes, only the inputs of the first one are not
  /// copied.
  ///
  /// The worker can write into every lent block at any time. So `retry` does not repeat a job with
  /// a lent input, and after the process has ended, lent blocks may hold anything. If a job fails,
  /// its lent outputs may hold a part of the result.
  ///
  /// Destroying the WorkerBuffer counts as a call of the graph. You may destroy it while a job uses
  /// it: the worker keeps the memory until the job is done, and what the job writes there is lost.
  /// It may also outlive the graph. Its handle is not needed, and changes when a stand-by takes
  /// over.
  ///
  /// @param bytes  the size of the block, which is page-aligned and filled with zeros. One large
  ///               block is better than many small ones. At most 4,000 are lent at a time.
  /// @throws Error  as Worker::lend, and what a restart of the process throws.
  [[nodiscard]] WorkerBuffer lend(std::size_t bytes);
  /// Lends memory from Broker::host_memory, so that it serves graphs in the host's process, too.
  /// The same rules hold as for the memory above. It stays as long as one of both objects needs it.
  ///
  /// @throws Error  `invalid_argument` for memory from Broker::register_memory and for an object
  ///                that holds nothing; as above.
  [[nodiscard]] WorkerBuffer lend(const HostMemory& memory);
  /// Lends the host's device memory, for inputs and outputs with GraphPort::on_device. A buffer
  /// is then a device address in it, as this process has it. Nothing is copied through host memory,
  /// and every later process gets the same memory.
  ///
  /// No host stream waits for the worker, or the worker for a stream. Wait until all of
  /// the host's work on a buffer is done before you submit a job with it. Use the buffer again when
  /// the job is finished: its outputs are complete then.
  ///
  /// The worker can write into the memory at any time, as it can into a lent block. So `retry` does
  /// not repeat a job with an input on the device, and after the process has ended, the memory may
  /// hold anything. It stays valid here.
  ///
  /// @param memory  from DeviceMemory::shareable, on WorkerGraphDescription::device. It stays the
  ///                host's. Keep it until the result is destroyed. Lent memory takes a file
  ///                descriptor of this process.
  /// @return what takes it back, when it is destroyed.
  /// @throws Error  `invalid_argument` for other memory, for memory of another device, and for a
  ///                graph with several processes; what DeviceMemory::export_descriptor throws here
  ///                and DeviceMemory::imported in the worker; what a restart of the process throws.
  [[nodiscard]] WorkerDeviceBuffer lend(const ctxbroker::DeviceMemory& memory);

  /// As Graph::submit. Inputs in host memory are read before the call returns, unless they lie in a
  /// HostMemory and their plug-in is in the host's process. JobBuffers::after must be null.
  std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job,
                       const WorkerJobEvents& events = {});
  /// As Graph::finish. If the worker has ended since the job's submit, it throws `context_lost`,
  /// and no job is in flight any more. With dry_while_away, it returns JobOutcome::dry for a job
  /// that was made without a process, and for a block of audio whose process has ended since.
  JobOutcome finish(std::uint64_t job);
  /// As Graph::is_done. If the worker has ended, it returns true, and finish says so.
  [[nodiscard]] bool is_done(std::uint64_t job);
  /// As Graph::process.
  JobOutcome process(const JobBuffers& buffers, const JobInfo& job,
                     const WorkerJobEvents& events = {});
  /// The same for a graph with one input and one output. `output` may be `input`.
  JobOutcome process(const float* input, float* output, const JobInfo& job,
                     const WorkerJobEvents& events = {});

  /// How many processes the graph has.
  [[nodiscard]] std::size_t processes() const;
  /// Which of them a node is in, counted from 0 in the order in which they run.
  ///
  /// @throws Error  `invalid_argument` when there is no such node. So do the functions below.
  [[nodiscard]] std::size_t process_of(std::size_t node) const;
  [[nodiscard]] WorkerState state(std::size_t node = 0) const;   ///< As Worker::state.
  [[nodiscard]] std::string reason(std::size_t node = 0) const;  ///< As Worker::reason.
  /// As Worker::last_exit.
  [[nodiscard]] std::optional<WorkerExit> last_exit(std::size_t node = 0) const;
  [[nodiscard]] std::uint64_t exits(std::size_t node = 0) const;  ///< As Worker::exits.
  [[nodiscard]] int process_id(std::size_t node = 0) const;       ///< As Worker::process_id.
  /// Ends all worker processes by force, for example when the user cancels. The call that is in a
  /// process throws `context_lost`, but a job with dry_while_away becomes dry. These exits do not
  /// count towards crash_limit. The next call starts the processes again.
  ///
  /// @param reason  one sentence for records.
  void kill(const std::string& reason);
  /// Forgives all exits of all processes, and lifts quarantines and the state after a failed start.
  /// The next call starts the processes.
  void pardon();

 private:
  std::unique_ptr<detail::GroupedGraph> impl_;
};

}  // namespace ctxbroker
