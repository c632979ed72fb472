// SPDX-License-Identifier: Apache-2.0
/// @file
/// Connects plug-ins and runs jobs through them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ctxbroker/cuda_handles.hpp"
#include "ctxbroker/export.hpp"
#include "ctxbroker/job_events.hpp"
#include "ctxbroker/plugin_instance.hpp"

namespace ctxbroker {

class Broker;
class Tenant;

namespace detail {
struct GraphAccess;
}

/// A rectangle of pixels. Coordinates may be negative; y grows from row to row.
struct ImageRegion {
  std::int32_t x = 0;  ///< The first pixel's.
  std::int32_t y = 0;
  std::uint32_t width = 0;  ///< 0: none.
  std::uint32_t height = 0;
};

/// One job: an image, or a block of audio.
struct JobInfo {
  std::uint32_t width = 1;    ///< Pixels in a row of the whole image, or frames in this block.
  std::uint32_t height = 1;   ///< Rows of the whole image, or channels.
  std::int64_t position = 0;  ///< The frame's number, or the first sample's.
  double sample_rate = 0;     ///< Hz, for audio that of the activation; 0 for images.
  /// How long the job may take from submit on, in ns; 0: no limit. The broker tells the plug-ins,
  /// and GraphOptions::late says what becomes of a job that takes longer.
  std::uint64_t deadline_ns = 0;
  bool discontinuity = false;  ///< The job does not follow the last one.
  /// For images: the part of each output that the host wants, a tile for example. It lies inside
  /// the outputs' extents, see Graph::output_extents. Without one (width 0), the host gets width x
  /// height pixels from (0, 0).
  ImageRegion region{};
  /// For images: the extent of each of GraphDescription::inputs. Empty: all have width x height
  /// pixels from (0, 0).
  std::vector<ImageRegion> extents{};
};

/// A port of a graph: an input that the host gives, or an output that it gets.
struct GraphPort {
  std::string name;  ///< As the edges call it: "plate".
  /// The channels of a pixel or of audio. 0: 4 for images, and JobInfo::height for audio.
  std::uint32_t channels = 0;
  SampleType samples = SampleType::float32;
  /// The host's memory for it is device memory, in the lease of GraphDescription::tenant.
  bool on_device = false;
};

/// A plug-in in a graph.
struct GraphNode {
  std::string name;                    ///< As the edges call it: "blur".
  PluginInstance* instance = nullptr;  ///< Borrowed, and active. It may be in several nodes.
};

/// A connection. It names its source and its target as "node.port", as "node" for the node's first
/// port, or with the name of one of the graph's ports. One output may feed several inputs; an input
/// has one source.
struct GraphEdge {
  std::string from;  ///< An input of the graph, or an output port.
  std::string to;    ///< An output of the graph, or an input port.
};

/// Describes a graph. Order does not matter, except that jobs name the graph's ports by their
/// position.
struct GraphDescription {
  std::vector<GraphPort> inputs;   ///< What the host gives. None: everything is generated.
  std::vector<GraphPort> outputs;  ///< What the host gets. At least one.
  std::vector<GraphNode> nodes;    ///< At least one, all for the same media.
  std::vector<GraphEdge> edges;
  /// Whose device memory the ports with GraphPort::on_device are in. Borrowed. It must outlive the
  /// graph, and it cannot be closed before. Null: there is no such port.
  Tenant* tenant = nullptr;
  int device = 0;  ///< CUDA device ordinal of that memory.
};

/// One member of JobBuffers::inputs.
struct JobInput {
  std::size_t input = 0;  ///< The position in GraphDescription::inputs.
  int frame = 0;          ///< The distance from the job's frame: -1 for the frame before it.
};

/// The host's memory for one job, without gaps between rows or channels.
///
/// The inputs are in the order of GraphDescription::inputs. If a plug-in needs frames around the
/// job's own one, there are more of them, in the order of Graph::job_inputs. The outputs are in the
/// order of GraphDescription::outputs.
///
/// An image has width * height * channels samples. Audio has one channel after the other, each of
/// `width` floats. Results have as many bytes as their port says.
///
/// Images are whole if the job has neither a region nor extents. Otherwise each input is the part
/// that Graph::input_regions returns, and each output is JobInfo::region.
struct JobBuffers {
  std::vector<const void*> inputs;  ///< For ports on the device, device addresses.
  std::vector<void*> outputs;       ///< Likewise.
  /// For ports on the device: a host stream in the lease that holds them. The job reads
  /// and writes there after all work that is in the stream now. Null: it need not wait.
  CUstream after = nullptr;
};

/// What becomes of a job whose work is not done when its deadline has passed.
enum class LateJobs {
  /// The graph waits for it, and its outputs are complete.
  deliver,
  /// The graph does not wait for it. Each output is a copy of the first input that has its format,
  /// or zeros if there is none. Audio is delayed by Graph::latency_frames, so that it fits to the
  /// jobs before and after.
  dry,
  /// The graph does not wait for it, and its outputs are not written.
  drop,
};

/// How a job went.
enum class JobOutcome {
  done,       ///< Its outputs are complete. Finish did not have to wait beyond its deadline.
  late,       ///< Its outputs are complete, but finish waited for them beyond its deadline.
  dry,        ///< It was late, and its outputs are as LateJobs::dry says. Or a worker was away, and
              ///< they are as WorkerGraphOptions::dry_while_away says.
  dropped,    ///< It was late, and its outputs were not written.
  forgotten,  ///< It was finished too long ago, or it was lost in a failure of an older job.
  cancelled,  ///< Graph::cancel took it back before it began. Its outputs were not written.
};

/// Returns "done", "late", "dry", "dropped", "forgotten" or "cancelled". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(JobOutcome outcome) noexcept;

/// How a graph runs its jobs.
struct GraphOptions {
  /// The most jobs that are submitted and not yet finished: 1 to 64. Each takes buffers of its own,
  /// in device memory and in pinned memory.
  std::uint32_t jobs_in_flight = 1;
  /// Measures how long each node works on the device, for Metrics::device_seconds. Measuring costs
  /// a small job about 3 us for each node. While a timeline is recorded, every job is measured.
  bool measure = false;
  /// After a fault, the error names only the plug-in that can have caused it. For that, each node
  /// writes a mark when its work has ended, which costs a small job about 1 us for each node.
  /// If several jobs can be in flight, the error also names the position of the job. Without marks,
  /// the error names every plug-in of the jobs in flight.
  bool name_faults = true;
  /// The treatment of jobs that miss their deadlines. A graph with ports on the device can only
  /// deliver.
  LateJobs late = LateJobs::deliver;
  /// Called with a job's number as soon as all of its work is done, so that finish does not wait.
  /// May be empty. A driver thread or a thread in a call of the graph calls it, perhaps before
  /// submit has returned. It must return quickly, and call neither CUDA nor the broker. What it
  /// throws is recorded.
  ///
  /// **Never hold a lock that it takes while you call any graph.** That call may wait for it, and
  /// neither would return. With it, submit takes a lock that the call holds too, so do without it
  /// on a real-time thread.
  ///
  /// It is called for a waiting job that is cancelled or cannot begin. It is not called for a job
  /// whose work fails, and not after the graph's end. So a loop that waits for it needs a time
  /// limit. When the time is over, call finish, which throws the error. After the call, the host
  /// still has to finish the job. If `late` is not LateJobs::deliver, the call can come after
  /// finish has returned.
  std::function<void(std::uint64_t)> on_done{};
  /// The most changes of parameters that a job may have: 0 to 65536.
  std::uint32_t changes_per_job = 1024;
  /// The most jobs that wait until they can be in flight: 0 to 1024. A job that waits can be
  /// cancelled. It begins in a call to the graph that finds room for it, on the thread of that
  /// call, and gets the parameters of that moment. Its inputs are read then. A graph with ports on
  /// the device has no waiting jobs. Do without them on a real-time thread, because they allocate.
  std::uint32_t jobs_waiting = 0;
};

/// Plug-in instances that are connected port to port. A job goes from host memory to the device,
/// through every node, and back. Nodes that do not depend on each other run at the same time, as
/// far as their leases allow it.
///
/// The instances may be on several devices. Between nodes whose leases share memory (shared and
/// green leases of one device do), a buffer is handed over; between others it is copied. The
/// graph's ports may be in device memory too (GraphPort::on_device); then a job copies from there
/// and to there.
///
/// Audio stays aligned: where branches of different latency meet, at a plug-in's inputs
/// (side-chains included) or at the host's outputs, the graph delays the earlier ones. Results are
/// not delayed. The delays begin with silence at a discontinuity, after a failed job, and when the
/// number of channels changes.
///
/// A graph belongs to the activations of its instances: after a deactivate, make a new graph. It is
/// move-only, and a moved-from graph must not be used. Destroy it before its instances and before
/// the broker. The destructor waits for the jobs in flight, as Graph::finish does.
///
/// Threads: any thread may call the functions of a graph, but only one at a time per graph. Graphs
/// that have an instance in common count as one graph, and only one of them may have jobs in
/// flight. The work of a late job may go on when the job is finished: end the graph before you use
/// its instances in another one. A graph may run beside other graphs, and beside all calls that are
/// not of the graph's instances, Broker::poll and Broker::force_loss included. Construct, move and
/// destroy graphs on the thread that opened the broker, or serialise that with it.
class CTXB_API Graph {
 public:
  /// Connects instances and allocates the buffers between them.
  ///
  /// @param broker       the broker of the instances. It must outlive the graph.
  /// @param description  what to connect. The instances are active for at least `sizes`; they are
  ///                     borrowed and must outlive the graph.
  /// @param sizes        the largest job, in pixels or frames and channels. For audio, the sample
  ///                     rate is the one for which all instances are active.
  /// @param options      how the graph runs its jobs.
  /// @throws Error  `invalid_argument`, with the names of the ports, for a cycle, an input without
  ///                a source, formats that do not meet, and other mistakes; `out_of_memory`,
  ///                `out_of_host_memory`, `context_lost`, `driver_call`; `wrong_state` when the
  ///                broker is closed; what PluginInstance::activate throws, if a lost lease is
  ///                renewed.
  Graph(Broker& broker, const GraphDescription& description, const ActivationSizes& sizes,
        const GraphOptions& options = {});
  /// The same for instances in a row: from the host's one input through each instance's first input
  /// and first output to the host's one output.
  ///
  /// @param row      the instances in their order, at least one.
  /// @param samples  what the host gives and gets. Halves are for images only.
  Graph(Broker& broker, const std::vector<PluginInstance*>& row, const ActivationSizes& sizes,
        const GraphOptions& options = {}, SampleType samples = SampleType::float32);
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  ~Graph();

  /// Returns what JobBuffers::inputs holds: an entry for each of the graph's inputs and each frame
  /// of it that the plug-ins need, input after input, each with its frames in order. Every job
  /// needs the same ones. Beyond the ends of a sequence, give the frame at the end again.
  ///
  /// @return a list that lives as long as the graph.
  [[nodiscard]] const std::vector<JobInput>& job_inputs() const&;
  [[nodiscard]] std::vector<JobInput> job_inputs() && { return job_inputs(); }

  /// Asks the plug-ins for the extents of the graph's outputs: how large the whole images are.
  ///
  /// @param job  its size or extents, and its position. Other members do not count.
  /// @return one extent for each output; none (width 0) for results.
  /// @throws Error  `invalid_argument` for audio, and for inputs whose extents do not suit a
  ///                plug-in; `plugin_failed`; what submit throws for a lost lease.
  [[nodiscard]] std::vector<ImageRegion> output_extents(const JobInfo& job);

  /// Asks the plug-ins which parts of the inputs a job needs for its region. The answers depend on
  /// the parameters: set them first, then ask, then submit.
  ///
  /// @param job  as for submit.
  /// @return one region for each member of JobBuffers::inputs. It lies inside the input's extent.
  /// @throws Error  as output_extents does; `invalid_argument` for a region outside an output's
  ///                extent.
  [[nodiscard]] std::vector<ImageRegion> input_regions(const JobInfo& job);

  /// Starts one job and returns as soon as its work is enqueued.
  ///
  /// If as many jobs are in flight as there may be, the job waits (GraphOptions::jobs_waiting). If
  /// as many wait as there may be, the call finishes the oldest job first.
  /// An instance whose lease was lost is activated again first, unless it is active for real time.
  /// Before that, all jobs in flight are finished. The broker calls the plug-in's functions for
  /// that on this thread. It makes only one such call at a time, whatever the thread and the
  /// plug-in.
  /// If a plug-in answers that it was not ready (CTXB_AGAIN), the graph waits for the plug-in's
  /// work and calls it once more; a second CTXB_AGAIN is `plugin_failed`.
  ///
  /// A job that has begun cannot be taken back. A host that changes its mind often should have few
  /// jobs in flight and let the others wait: see cancel.
  ///
  /// @param buffers  the inputs are read before the call returns, or when a job that waits begins.
  ///                 The outputs are written when the job is finished. Both must stay valid until
  ///                 then. An output may be an input.
  ///                 What lies in device memory or in a HostMemory is read and written while the
  ///                 job runs, and must stay as it is until the job is finished. If a buffer begins
  ///                 in a HostMemory and does not end in it, the call throws `invalid_argument`.
  /// @param job      no larger than the graph's sizes.
  /// @param events   changes within the block, and the transport. A plug-in gets the changes at the
  ///                 frames that you name, whatever latency is in front of it.
  /// @return the job's number: 1, 2, 3, ...
  /// @throws Error  as process does; `plugin_failed` if the job needs other regions of its inputs
  ///                than input_regions has said for it. This job then has no number and is not in
  ///                flight. The others still are, so finish them. If it was an older job that
  ///                failed, none is in flight any more, and finish returns
  ///                JobOutcome::forgotten for them.
  std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job, const JobEvents& events = {});

  /// Waits until a job's outputs are complete. Jobs finish in the order in which they were
  /// submitted, so this finishes the older ones too. It does nothing for a job that is finished or
  /// cancelled. If a job that had waited could not begin, the call throws what submit throws.
  ///
  /// If the work takes longer than BrokerOptions::job_timeout, the call throws `context_lost`. The
  /// lease of each node whose work has not ended becomes hung, unless the node only waits for
  /// another one. Then its lease is lost.
  ///
  /// If a kernel faults, the call throws `context_lost` and names the node whose work had begun and
  /// not ended. If it can be one of several, the text names all of them ("one of the plug-ins a,
  /// b"). If work outside of the graph faults at that moment, the text can blame a node.
  ///
  /// If the job's deadline has passed and its work is not done, GraphOptions::late says what the
  /// call does, and Metrics::late_jobs counts the job for each instance whose work had not ended.
  ///
  /// @param job  what submit returned.
  /// @return how the job went. A graph remembers that for as many jobs as it may have in flight and
  ///         waiting.
  /// @throws Error  `invalid_argument` for a number that submit has not returned; as process does,
  ///                for this job or an older one. Then none is in flight any more, and the outputs
  ///                of those that were are undefined.
  JobOutcome finish(std::uint64_t job);

  /// Returns whether a job is finished, or can be finished without waiting. If jobs wait
  /// (GraphOptions::jobs_waiting), it finishes those that are done and begins with others, so it
  /// calls plug-ins and GraphOptions::on_done on this thread. It does not wait.
  /// @throws Error  `invalid_argument` for a number that submit has not returned.
  [[nodiscard]] bool is_done(std::uint64_t job);

  /// Takes a job back that waits. GraphOptions::on_done is called for it, in this call. It does
  /// nothing for a job that has begun.
  ///
  /// For audio, the next job does not follow the one before: set JobInfo::discontinuity.
  ///
  /// @return whether the job was waiting. Its buffers are then not used any more.
  /// @throws Error  `invalid_argument` for a number that submit has not returned.
  bool cancel(std::uint64_t job);

  /// Makes a host stream wait until a job's outputs are complete. The calling thread does
  /// not wait. The job has to be finished all the same.
  ///
  /// @param job     what submit returned. If it is finished, the call does nothing.
  /// @param stream  a stream in the lease that holds the graph's ports on the device.
  /// @throws Error  `invalid_argument` for a number that submit has not returned, a null stream,
  ///                and a graph without ports on the device; `driver_call`, `context_lost`.
  void follow(std::uint64_t job, CUstream stream);

  /// Runs one job and returns when its outputs are complete: submit and finish.
  ///
  /// @return how the job went.
  /// @throws Error  `invalid_argument` for a job that is too large or, for audio, has another
  ///                sample rate than the graph, for missing buffers, and for changes that cannot
  ///                be made; `parameter_value` for a change to a value out of range;
  ///                `wrong_state`; `plugin_failed`, `driver_call`, `context_lost`. The output is
  ///                undefined after an exception. The graph can be used again unless the text says
  ///                otherwise.
  JobOutcome process(const JobBuffers& buffers, const JobInfo& job, const JobEvents& events = {});
  /// The same for a graph with one input and one output, both of them floats in the host's memory.
  /// `output` may be `input`.
  ///
  /// @throws Error  `invalid_argument` for any other graph; else as above.
  JobOutcome process(const float* input, float* output, const JobInfo& job,
                     const JobEvents& events = {});

  /// Returns by how many frames the outputs of audio are late: all of them by the same number. It
  /// is constant until an instance is activated again. 0 for images.
  [[nodiscard]] std::uint64_t latency_frames() const;
  /// Returns by how many frames the input of a node is late. Frame f of the song is frame
  /// f + latency_before of what the node processes, so add this to the offset of a change.
  ///
  /// @param node  its position in GraphDescription::nodes.
  /// @throws Error  `invalid_argument` when there is no such node.
  [[nodiscard]] std::uint64_t latency_before(std::size_t node) const;

 private:
  friend struct detail::GraphAccess;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ctxbroker
