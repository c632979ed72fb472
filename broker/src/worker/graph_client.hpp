// SPDX-License-Identifier: Apache-2.0
// A WorkerGraph on the host's side: what its plug-ins are set to, which a new process gets, and the
// jobs that are in the worker.
//
// The process may write into shared memory at any time and answer anything. So answers are copied,
// then checked, and lengths of the host's own buffers never come from an answer to a job.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/worker_graph.hpp"
#include "graph/delay_lines.hpp"
#include "plugin/foreign_text.hpp"
#include "worker/done_jobs.hpp"
#include "worker/graph_segment.hpp"
#include "worker/graph_wire.hpp"
#include "worker/lent_blocks.hpp"
#include "worker/lent_devices.hpp"
#include "worker/scheduling.hpp"

namespace ctxbroker::detail {

struct WorkerProcess;

// With absolute paths and a name for each node. Throws Error (invalid_argument), which names the
// member, when the options do not suit.
WorkerGraphDescription checked(WorkerGraphDescription description,
                               const WorkerGraphOptions& options);
// Checks an activation as far as that is possible without a worker: the ports have the graph's
// names, and the sizes suit the media. Throws Error (invalid_argument).
void check_activation(const WorkerGraphDescription& graph, Media media,
                      const ActivationSizes& sizes, const std::vector<GraphPort>& inputs,
                      const std::vector<GraphPort>& outputs);

class GraphClient final : public GraphSegment {
 public:
  // A stand-by has its plug-ins, and waits for its turn.
  enum class Role : std::uint8_t { in_charge, stand_by };
  GraphClient(WorkerGraphDescription description, WorkerGraphOptions options,
              Role role = Role::in_charge);
  // Ends the jobs in flight, whose outputs nobody waits for any more.
  ~GraphClient() override;

  WorkerNodeState node_state(std::size_t node) override;
  BrokerMetrics metrics() override;
  TimelineSummary write_timeline(const TimelineSink& sink) override;
  void poll() override;
  void set_parameter(std::size_t node, std::string_view id, const ParameterValue& value) override;
  void set_text(std::size_t node, std::string_view id, std::string_view text) override;
  ParameterValue parameter_value(std::size_t node, std::string_view id) const override;
  std::string text(std::size_t node, std::string_view id) const override;
  ParameterValue from_text(std::size_t node, std::string_view id, std::string_view text) override;
  std::string to_text(std::size_t node, std::string_view id, const ParameterValue& value) override;
  Preset save_preset(std::size_t node) override;
  std::vector<PresetRemark> load_preset(std::size_t node, const Preset& preset) override;
  Preset last_preset(std::size_t node) const override;

  void activate(const ActivationSizes& sizes, std::vector<GraphPort> inputs,
                std::vector<GraphPort> outputs) override;
  void deactivate() override;
  // Starts the process, if there is none, and brings it to where the last one was.
  void set_up();
  // The same for a job. With dry_while_away, it does not wait: it returns false as long as the next
  // process is not ready.
  bool get_ready() override;
  std::uint64_t skip_job() override;
  void mark_discontinuity() noexcept override { discontinuity_ = dry_begins_anew_ = true; }

  const std::vector<JobInput>& job_inputs() const override;
  std::vector<ImageRegion> output_extents(const JobInfo& job) override;
  std::vector<ImageRegion> input_regions(const JobInfo& job) override;
  std::uint64_t latency_frames() const override;
  std::uint64_t latency_before(std::size_t node) const override;

  WorkerBuffer lend(std::size_t bytes) override;
  WorkerBuffer lend(std::shared_ptr<HostPages> pages) override;
  WorkerDeviceBuffer lend(const ctxbroker::DeviceMemory& memory) override;
  void make_relay(const void* name, std::uint64_t bytes, int device) override;
  Descriptor release_relay(const void* name) override;
  void take_relay(Descriptor file, const void* name, std::uint64_t bytes, int device) override;
  // The host has ended it, and no job uses it.
  void take_back(LentDevice& device) noexcept;
  std::uint64_t submit(const JobBuffers& buffers, const JobInfo& job,
                       const WorkerJobEvents& events) override;
  JobOutcome finish(std::uint64_t job) override;
  bool is_done(std::uint64_t job) override;
  JobOutcome process(const JobBuffers& buffers, const JobInfo& job,
                     const WorkerJobEvents& events) override;
  bool can_repeat(const JobInfo& job, const Error& error) const override;
  bool has_jobs() const noexcept override { return oldest() != nullptr; }
  bool is_lent(const void* buffer) const override;

  const PluginDescription& description(std::size_t node) const override {
    return at(node).description;
  }
  const DriverInfo& driver() const override { return driver_; }
  const std::vector<DeviceInfo>& devices() const override { return devices_; }
  std::shared_ptr<WorkerImpl> worker() const override {
    const std::lock_guard lock(worker_mutex_);
    return worker_.impl_;
  }

 private:
  using State = std::shared_ptr<const std::vector<std::byte>>;
  struct Node {
    PluginDescription description;
    std::string described;  // the same as the worker has said it
    bool has_state = false;
    std::vector<ParameterValue> values;  // of each parameter; those of texts count for nothing
    std::vector<std::string> texts;
    State state;  // the last that was seen, or null
  };
  struct Flight {
    std::uint64_t job = 0;  // 0: it is free
    std::uint64_t in_worker = 0;
    WorkerBuffer block;
    std::vector<BufferPlace> places;  // inputs, then outputs
    std::uint64_t bytes = 0;          // of all that goes into the block
    std::vector<void*> outputs;
    std::vector<std::shared_ptr<LentBlock>> lent;      // which the job uses
    std::vector<std::shared_ptr<LentDevice>> devices;  // likewise
    std::vector<std::vector<std::byte>> dry;           // of each output, with dry_while_away
  };
  // The settings with which a process is activated.
  struct Settings {
    std::vector<Node> nodes;
    std::vector<GraphPort> inputs, outputs;
    ActivationSizes sizes;
    std::uint64_t number = 0;
  };
  // The purpose of the next process: it takes over if this one ends, or because this one has ended.
  enum class Purpose : std::uint8_t { stand_by, replacement };

  static std::span<const std::byte> bytes_of(const State& state) noexcept {
    return state ? std::span<const std::byte>(*state) : std::span<const std::byte>();
  }
  const Node& at(std::size_t node) const;
  Node& at(std::size_t node) { return const_cast<Node&>(std::as_const(*this).at(node)); }
  std::size_t parameter_of(const Node& node, std::string_view id, bool is_text) const;
  void check_active() const;

  // The process.
  bool is_set_up() const;
  void start_process();
  void drop_blocks() noexcept;
  bool take_next();
  void take_settings(const Settings& settings);
  void leave_settings();
  void stand_by_with(const std::optional<Settings>& settings) noexcept;
  void bring_up_to_date(GraphClient& next);
  void arrive();
  void restore_all();
  void prepare_next(Purpose purpose);
  void prepare_stand_by() noexcept;
  void prepare_replacement() noexcept;
  bool fits_stand_by() const;
  void open();
  void create(std::size_t index);
  void check_unchanged(std::size_t index, const Node& made) const;
  void restore(std::size_t index);
  void send_activation();
  void take_activation(std::vector<JobInput> inputs, std::uint64_t latency,
                       std::vector<std::uint64_t> before);
  // Sends a question and the state that it is about, and returns the answer.
  Json ask(GraphCall type, const Json& question, std::span<const std::byte> state = {});
  // The text of an answer, and the bytes of the states behind it, which lie in document_.
  struct Answer {
    Json json;
    std::span<const std::byte> states;
  };
  enum class States : std::uint8_t { none, some };  // that may come with an answer
  Answer exchange(GraphCall type, const Json& question, std::span<const std::byte> state,
                  States wanted);
  std::vector<State> take_states(const Answer& answer, std::size_t count);
  void drop_large_document() noexcept;
  DocumentReply send_document(const DocumentMessage& message, GraphCall type);
  // Reads an answer, which must be right.
  template <typename Read>
  auto read(const Read& read_it) {
    try {
      return read_it();
    } catch (const Json::exception& error) {
      refuse(std::string("an answer of it cannot be right: ") + take_message(error.what()));
    } catch (const json::DocumentError& error) {
      refuse(std::string("an answer of it cannot be right: ") + take_message(error.what()));
    }
  }
  [[noreturn]] void refuse(const std::string& why);
  [[noreturn]] void stale();
  std::vector<ImageRegion> regions(const char* what, const JobInfo& job, std::size_t count);

  // Jobs.
  JobOutcome process_once(const JobBuffers& buffers, const JobInfo& job,
                          const WorkerJobEvents& events);
  JobReply send_job(GraphCall type, const JobMessage& message);
  JobReply start(GraphCall type, Flight& flight, const JobBuffers& buffers, const JobInfo& job,
                 const WorkerJobEvents& events);
  void check_job(Flight& flight, const JobBuffers& buffers, const JobInfo& job,
                 const WorkerJobEvents& events);
  void check_changes(const JobInfo& job, const WorkerJobEvents& events) const;
  void measure_buffers(const JobBuffers& buffers, const JobInfo& job);
  std::shared_ptr<LentBlock> find_block(const void* address) const;
  BufferPlace place_of(const void* buffer, std::uint64_t bytes, Flight& flight) const;
  const GraphPort& port_of(std::size_t buffer) const;
  BufferPlace device_place_of(const GraphPort& end, const void* buffer, std::uint64_t bytes,
                              Flight& flight) const;
  std::uint64_t pass(const Descriptor& file);
  void give(LentDevice& device);
  WorkerDeviceBuffer register_lent(std::shared_ptr<LentDevice> lent);
  static void end_devices(Flight& flight) noexcept;
  static void hold_blocks(const Flight& flight) noexcept;
  static void end_flight(Flight& flight) noexcept;
  void keep_values(const WorkerJobEvents& events, std::uint32_t frames);
  void copy_outputs(const Flight& flight, JobOutcome outcome) const;
  std::uint32_t find_result_bytes(std::size_t output) const;
  const Flight* oldest() const noexcept;
  Flight* oldest() noexcept { return const_cast<Flight*>(std::as_const(*this).oldest()); }
  Flight& free_flight();
  JobOutcome end_job(const Flight& flight);
  void finish_oldest();
  void lose_jobs() noexcept;

  // The dry signal. Of pictures, GroupedGraph makes it.
  bool has_dry_sound() const noexcept;
  bool becomes_dry(const Error& error) const noexcept;
  std::vector<std::optional<HostDelayLine>> make_dry_lines(std::uint64_t latency) const;
  void keep_dry(Flight& flight, const JobBuffers& buffers, const JobInfo& job);
  void give_dry(Flight& flight) noexcept;
  void give_up_jobs() noexcept;
  void tell_of_lost_jobs();
  std::optional<JobReply> start_or_dry(GraphCall type, Flight& flight, const JobBuffers& buffers,
                                       const JobInfo& job, const WorkerJobEvents& events);
  void check_submitted(std::uint64_t job) const;

  WorkerGraphDescription description_;
  WorkerGraphOptions options_;
  std::shared_ptr<std::atomic<bool>> in_charge_;
  std::shared_ptr<DoneJobs> done_jobs_;
  WorkerBuffer done_board_;          // before worker_, because late work can write there to the end
  mutable std::mutex worker_mutex_;  // for the exchange of worker_ alone
  Worker worker_;
  // The worker's process, and the blocks that it was lent, so that a warm job finds both without
  // the lock of the worker, under which its supervisor makes texts.
  std::weak_ptr<WorkerProcess> process_;
  mutable LentBlocks lent_blocks_;
  std::future<std::unique_ptr<GraphClient>> next_;
  bool next_is_replacement_ = false;  // dry_while_away waits for it
  bool stand_by_fits_ = false;        // the stand-by is activated, too
  // The client that this one has replaced. Its end may take a while, so another thread than that of
  // the jobs ends it.
  std::unique_ptr<GraphClient> retired_;
  const Scheduling scheduling_;  // of the thread that has made the graph
  DriverInfo driver_;
  std::vector<DeviceInfo> devices_;
  std::vector<Node> nodes_;

  std::uint64_t epoch_ = 0;  // of the last set-up
  std::uint64_t exits_ = 0;  // how many processes had ended then
  bool set_up_ = false, discontinuity_ = false;
  WorkerBuffer document_;

  bool active_ = false;
  // The number of the activation, or of what follows it. Of a next process: the one that it has.
  std::uint64_t settings_ = 0;
  // The same as settings_, for the threads that prepare the next process.
  std::shared_ptr<std::atomic<std::uint64_t>> newest_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  ActivationSizes sizes_;
  std::vector<JobInput> job_inputs_;
  std::uint64_t latency_ = 0;
  std::vector<std::uint64_t> latency_before_;
  std::uint64_t memory_ = 0;  // of the device, in bytes, that the plug-ins and their jobs take
  // The regions that the host was given last, and the job that they are for. The host's buffers
  // have these sizes.
  JobInfo regions_of_;
  std::vector<ImageRegion> regions_;

  std::shared_ptr<LentDevices> lent_devices_;
  std::vector<WorkerDeviceBuffer> relays_;
  std::vector<Flight> flights_;
  std::vector<std::uint64_t> sizes_of_;      // of the job's buffers
  std::vector<std::uint32_t> result_bytes_;  // of each output, if it gets an analyser's results
  std::vector<JobOutcome> outcomes_;         // of the last jobs, by their numbers
  std::uint64_t last_job_ = 0;

  // With dry_while_away: of each output, if the plug-ins have a latency.
  std::vector<std::optional<HostDelayLine>> dry_lines_;
  std::uint32_t dry_channels_ = 0;  // of the last job
  bool dry_begins_anew_ = false;    // the next job does not follow the last one
  std::uint64_t dry_jobs_ = 0;      // since the process is away
};

}  // namespace ctxbroker::detail
