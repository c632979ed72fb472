// SPDX-License-Identifier: Apache-2.0
// One created object of a plug-in: its life cycle, its parameters, and what it holds.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "context/lease.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin_instance.hpp"
#include "ctxbroker/preset.hpp"
#include "ledger/give_back.hpp"
#include "observe/counters.hpp"
#include "plugin/activation.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/failure_record.hpp"
#include "plugin/host_side.hpp"
#include "plugin/instance_settings.hpp"
#include "plugin/loaded_library.hpp"
#include "plugin/parameter_store.hpp"
#include "plugin/plugin_call.hpp"

namespace ctxbroker::detail {

// In `lost` the plug-in has been told that the context of its activation is gone.
enum class Phase : std::uint8_t {
  creating,
  idle,
  activating,
  active,
  processing,
  lost,
  deactivating,
  asked,  // in get_extent or get_region, on the thread of a job
};
const char* to_string(Phase phase) noexcept;

// [main] thread, but for process and what it calls.
class Instance {
 public:
  // Throws Error: no_device, kernel_image, plugin_failed, driver_call and the lease's.
  static std::unique_ptr<Instance> make(BrokerImpl& broker, std::shared_ptr<LoadedLibrary> library,
                                        std::size_t index, InstanceSettings settings);
  // Ends it. If a thread of the plug-in stays inside a call for longer than `end_timeout`, the
  // broker keeps the rest of it until the thread has left. If another thread stays inside a [main]
  // function of the library, the broker keeps all of it until try_to_end works.
  static void end(std::unique_ptr<Instance> instance) noexcept;
  // Without a wait: whether it has ended, and no thread of the plug-in is inside it.
  bool try_to_end() noexcept;
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  const PluginRecord& plugin() const { return library_->record(index_); }
  const InstanceSettings& settings() const noexcept { return settings_; }
  const PluginDescription& description() const noexcept { return description_; }
  const std::shared_ptr<Lease>& lease() const noexcept { return lease_; }
  // The lease's, on any thread.
  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_relaxed); }
  // Returns the lease as this instance sees it, with its own host's choice. The lease may have been
  // made for another instance's choice.
  LeaseInfo lease_info() const;
  Metrics metrics() const noexcept;

  // To set and get numbers, any thread; parameters that are not automatable on [main].
  void set_parameter(std::string_view id, const ParameterValue& value);
  [[nodiscard]] ParameterStatus try_set_parameter(std::size_t index,
                                                  const ParameterValue& value) noexcept;
  bool get_parameter(std::size_t index, ParameterValue& value) const noexcept;
  ParameterValue parameter_value(std::string_view id) const;
  void set_text(std::string_view id, std::string_view text);
  std::string text(std::string_view id) const;
  std::string to_text(std::string_view id, const ParameterValue& value);
  ParameterValue from_text(std::string_view id, std::string_view text);
  // Takes the values of the parameters that process will get. The thread that gives the next job
  // calls it before the job.
  void take_parameters() noexcept { parameters_.take_snapshot(); }
  // Puts the value to which a job changes a parameter, for this job and those after it. The caller
  // has checked it. The thread that gives the job calls it, after take_parameters.
  void put_value(std::size_t index, double value) noexcept { parameters_.put(index, value); }

  void activate(const ActivationSizes& sizes);
  // If another thread stays inside a [main] function of the library, it is only recorded.
  void deactivate() noexcept;
  bool active() const noexcept;
  const Activation* activation() const noexcept { return activation_.get(); }

  // While active. Asks the plug-in once for each activation. Throws Error: plugin_failed.
  std::uint64_t latency_frames();
  std::uint64_t tail_frames();  // asks each time
  bool has_state() const noexcept { return state_ != nullptr; }
  // While active. Asks the plug-in once for each activation. Throws Error: plugin_failed.
  const FrameRanges& frames();
  // The plug-in has CTXB_EXT_REGIONS. Then the functions below ask it. [main|render], while active.
  // Throws Error: plugin_failed.
  bool asks_regions() const noexcept { return regions_ != nullptr; }
  void get_extent(const std::vector<ctxb_rectangle>& inputs, std::int64_t position,
                  std::size_t output, ctxb_rectangle& extent);
  void get_region(const std::vector<ctxb_rectangle>& inputs, std::int64_t position,
                  std::size_t output, const ctxb_rectangle& wanted, std::size_t input,
                  ctxb_rectangle& needed);
  std::vector<std::byte> save_state();
  void load_state(std::span<const std::byte> state);

  // Broker::poll: calls context_lost, unless a job runs now, and on_main_thread. Does nothing while
  // another thread is inside a [main] function of the library; the next poll does it.
  void poll() noexcept;
  // Ends the activation whose lease is lost and begins another of the same sizes. Throws Error;
  // then it can be called again.
  void renew();
  // The last renew failed, and the host has not deactivated the plug-in since.
  bool awaits_renewal() const noexcept { return renewal_.has_value(); }
  // The number of times that the host has activated it. For the host, a renewal is the same
  // activation.
  std::uint64_t times_activated() const noexcept { return times_activated_; }
  // Evidence: work that this instance enqueued may be running.
  void set_in_flight(bool in_flight) noexcept {
    in_flight_.store(in_flight, std::memory_order_release);
  }
  bool in_flight() const noexcept { return in_flight_.load(std::memory_order_acquire); }
  // Its work in that stream did not end in its time: the lease is hung, and whether nobody else's
  // work was in flight is kept for tell_loss.
  void hang(Lease& lease, CUstream stream) noexcept;
  bool hung_alone() const noexcept { return hung_alone_.load(std::memory_order_acquire); }
  // Call it on the thread that is inside the plug-in's activate or process. The lease counts with
  // it when that call has ended, for others count there too and every one would lock the bus.
  void count_launch(const Kernel& kernel) noexcept {
    std::atomic<std::uint64_t>& launches = counters_.launches;
    kernel.last_launch = launches.load(std::memory_order_relaxed) + 1;
    launches.store(kernel.last_launch, std::memory_order_relaxed);
    if (!in_flight()) set_in_flight(true);
  }

  // The kernels that the last job launched: "kernels blur_rows, blur_columns". Empty: none through
  // the SDK. Between jobs.
  std::string last_kernels() const;

  // One job; the lease is entered by the caller or here. `in_flight` is its place among those that
  // are in flight, for the staging of its uploads. [render|audio], one thread at a time.
  struct Processed {
    CallOutcome outcome;
    ctxb_status status = CTXB_ERROR;  // what the plug-in returned
  };
  Processed process(ctxb_job job, std::size_t in_flight) noexcept;

  // The Error for a function of this plug-in that failed, with what plug-in and host said.
  Error failure(const char* function, const CallOutcome& outcome, ctxb_status status) const;

  // For the functions behind ctxb_host. Any thread.
  BrokerImpl& broker() const noexcept { return broker_; }
  const TenantIdentity& tenant() const noexcept { return *library_->tenant(); }
  // For RunningNote.
  const char* lasting_id() const noexcept { return lasting_id_; }
  const char* lasting_library() const noexcept { return library_->lasting_path(); }
  Phase phase() const noexcept { return phase_.load(std::memory_order_acquire); }
  // The budget for the device memory that it takes through the SDK.
  Budget& budget() noexcept { return budget_; }
  // The holder of its activation's memory. It must be active.
  Holder holder() const noexcept { return activation_->holder(); }
  const std::shared_ptr<LeaseModules>& modules() const noexcept { return modules_; }
  // Takes what has changed in the files of development modules; true when that took another
  // activation. Before a job. Throws Error.
  bool take_changed_files();
  bool watches_files() const noexcept;
  Counters& counters() noexcept { return counters_; }
  Activation* mutable_activation() noexcept { return activation_.get(); }
  FailureRecord& failures() noexcept { return failures_; }
  void ask_callback() noexcept { callback_asked_.store(true, std::memory_order_release); }
  void ask_restart() noexcept { restart_asked_.store(true, std::memory_order_release); }
  bool restart_requested() const noexcept { return restart_asked_.load(std::memory_order_acquire); }
  bool is_main_thread() const noexcept;
  bool is_process_thread() const noexcept;
  void strike(const char* function, const char* what) noexcept;

 private:
  Instance(BrokerImpl& broker, std::shared_ptr<LoadedLibrary> library, std::size_t index,
           InstanceSettings settings);
  std::uint64_t launches() const noexcept {
    return counters_.launches.load(std::memory_order_relaxed);
  }
  // After a call into the plug-in, with the count before it.
  void count_launches_since(std::uint64_t before, const Lease& lease) noexcept {
    lease.work().launches.fetch_add(launches() - before, std::memory_order_relaxed);
  }
  TurnUser main_user(const char* function) const noexcept {
    return {tenant().lasting_name, lasting_id_, function};
  }
  Error busy_error(const char* function, const TurnUser& other) const;
  std::string still_runs(const TurnUser& other) const;  // in words; throws std::bad_alloc
  void take_lease();
  void end_on_main() noexcept;
  void make_object();
  std::uint64_t ask_frames(const char* function, std::uint64_t (*ask)(const ctxb_plugin*));
  template <typename Ask>
  void ask_region(const char* function, const std::vector<ctxb_rectangle>& inputs,
                  std::int64_t position, const Ask& ask);
  Processed call_process(const ctxb_job& job) noexcept;
  Processed process_as_graph(const ctxb_job& job) noexcept;
  Processed lost(const char* what, CUresult status = CUDA_SUCCESS) noexcept;
  Processed busy(Phase now) noexcept;
  void give_up_graphs(const JobGraph::Outcome& why) noexcept;
  template <typename Extension>
  const Extension* extension(const char* id, std::size_t least_bytes);
  void tell_loss() noexcept;
  void answer_callback() noexcept;
  void end_activation() noexcept;
  void end_lost_activation(bool told) noexcept;
  void release_activation() noexcept;
  void take_back_held(const Activation& activation) noexcept;
  void wait_for_work() noexcept;
  LeaseRequest lease_request() const;
  void renew_lost_lease();
  GuardTarget nowhere() const noexcept { return broker_.nowhere(); }
  GuardedCall call(const char* function) noexcept {
    return {.tenant = &tenant(),
            .strikes = &counters_.strikes,
            .function = function,
            .plugin = description_.short_name.c_str(),
            .plugin_id = lasting_id_,
            .library = library_->lasting_path()};
  }
  // Calls a [main] function of the plug-in, in a turn of the library's.
  template <typename Function>
  CallOutcome call_main(const GuardTarget& target, const char* function, Function&& body) noexcept;
  // The same in `phase`; the phase before stands again afterwards. Not while a job may run.
  template <typename Function>
  CallOutcome call_main(Phase phase, const GuardTarget& target, const char* function,
                        Function&& body) noexcept;

  BrokerImpl& broker_;
  std::shared_ptr<LoadedLibrary> library_;  // before lease_: the lease ends first
  std::shared_ptr<Lease> lease_;            // changed in a turn of the library's
  std::atomic<std::uint64_t> generation_{0};
  std::size_t index_;
  PluginDescription description_;
  const char* const lasting_id_;
  InstanceSettings settings_;
  ParameterStore parameters_;
  Budget budget_;
  Counters counters_;
  FailureRecord failures_;
  HostSide& host_;
  const ctxb_plugin* object_ = nullptr;
  const ctxb_state_extension* state_ = nullptr;
  const ctxb_latency_extension* latency_ = nullptr;
  const ctxb_parameter_text_extension* parameter_text_ = nullptr;
  const ctxb_callback_extension* callback_ = nullptr;
  const ctxb_frames_extension* frames_ = nullptr;
  const ctxb_regions_extension* regions_ = nullptr;
  std::shared_ptr<LeaseModules> modules_;  // of the lease that the activation is in
  std::unique_ptr<Activation> activation_;
  std::unique_ptr<Activation> entered_;  // the newest of those that ended while a call was inside
  std::atomic<Phase> phase_{Phase::creating};
  std::atomic<std::thread::id> main_thread_{};     // inside a [main] function of this instance
  std::atomic<std::thread::id> process_thread_{};  // inside process
  std::atomic<bool> callback_asked_{false}, restart_asked_{false};
  std::atomic<bool> in_flight_{false}, hung_alone_{false};
  std::optional<ActivationSizes> renewal_;  // the one that has not succeeded yet
  std::uint64_t times_activated_ = 0;
  std::uint64_t launches_before_job_ = 0;  // the last one's
  bool has_ended_ = false;
};

// A preset of a plug-in's parameters, without its state. The texts are those of parameters that are
// text, and the values those of the others.
Preset preset_of(const PluginDescription& plugin, const std::vector<ParameterValue>& values,
                 const std::vector<std::string>& texts);
Preset values_of(const Instance& instance);
// Does what ctxbroker::load_preset does, with this state instead of that in the preset.
std::vector<PresetRemark> load_preset(PluginInstance& instance, const Preset& preset,
                                      std::optional<std::span<const std::byte>> state);

template <typename Function>
CallOutcome Instance::call_main(const GuardTarget& target, const char* function,
                                Function&& body) noexcept {
  const Turn turn(library_->main_turns(), main_user(function), broker_.end_timeout());
  if (!turn) return {.busy = turn.other()};
  const std::thread::id outer =
      main_thread_.exchange(std::this_thread::get_id(), std::memory_order_acq_rel);
  const RunningSide running(host_);
  const CallOutcome outcome = call_plugin(target, call(function), std::forward<Function>(body));
  main_thread_.store(outer, std::memory_order_release);
  say_replaced_handlers(tenant());
  return outcome;
}

template <typename Function>
CallOutcome Instance::call_main(Phase phase, const GuardTarget& target, const char* function,
                                Function&& body) noexcept {
  failures_.clear();
  const Phase before = phase_.exchange(phase, std::memory_order_acq_rel);
  const CallOutcome outcome = call_main(target, function, std::forward<Function>(body));
  phase_.store(before, std::memory_order_release);
  return outcome;
}

}  // namespace ctxbroker::detail
