// SPDX-License-Identifier: Apache-2.0
#include "plugin/instance.hpp"

#include <array>
#include <utility>

#include "context/realtime_session.hpp"
#include "observe/enum_names.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/status_text.hpp"
#include "plugin/struct_check.hpp"

namespace ctxbroker::detail {
namespace {

// Refuses a plug-in that needs NVIDIA's driver if there is another one. Otherwise, the CUDA
// libraries in the plug-in would fail later, with messages of their own.
void check_driver(const Driver& driver, const PluginDescription& plugin) {
  if (!plugin.needs_nvidia_driver || driver.info.kind == DriverChoice::nvidia) return;
  throw Error(ErrorKind::needs_gpu,
              "plug-in " + plugin.short_name +
                  " cannot be used here: it needs a GPU, because it works on NVIDIA's driver only, "
                  "and this is the software device (" +
                  driver.info.reason +
                  "); leave it out, or use a machine with a GPU and its driver");
}

// The device must be there and new enough before a context is made on it.
void check_device(const Driver& driver, const PluginDescription& plugin, int ordinal) {
  const auto count = static_cast<int>(driver.devices.size());
  if (ordinal < 0 || ordinal >= count) return;  // the lease's own message says it better
  const DeviceInfo& device = driver.devices[static_cast<std::size_t>(ordinal)];
  const std::pair have(device.compute_major, device.compute_minor);
  const std::pair need(plugin.min_compute_major, plugin.min_compute_minor);
  if (have >= need) return;
  const auto text = [](std::pair<int, int> capability) {
    return std::to_string(capability.first) + "." + std::to_string(capability.second);
  };
  throw Error(ErrorKind::kernel_image,
              "plug-in " + plugin.short_name + " needs compute capability " + text(need) +
                  "; device " + std::to_string(ordinal) + " (" + device.name + ") has " +
                  text(have),
              {.device = ordinal});
}

ErrorKind kind_of_status(ctxb_status status) noexcept {
  switch (status) {
    case CTXB_ERROR_OUT_OF_DEVICE_MEMORY:
      return ErrorKind::out_of_memory;
    case CTXB_ERROR_OUT_OF_HOST_MEMORY:
      return ErrorKind::out_of_host_memory;
    case CTXB_ERROR_SYSTEM_LIMIT:
      return ErrorKind::system_limit;
    case CTXB_ERROR_NO_KERNEL_IMAGE:
      return ErrorKind::kernel_image;
    case CTXB_ERROR_CONTEXT_LOST:
      return ErrorKind::context_lost;
    default:
      return ErrorKind::plugin_failed;
  }
}

}  // namespace

const char* to_string(Phase phase) noexcept {
  constexpr std::array names{"being created", "not active",
                             "in activate",   "active and not in process",
                             "in process",    "active in a context that is gone",
                             "in deactivate", "in get_extent or get_region"};
  return name_of(names, phase);
}

Instance::Instance(BrokerImpl& broker, std::shared_ptr<LoadedLibrary> library, std::size_t index,
                   InstanceSettings settings)
    : broker_(broker),
      library_(std::move(library)),
      index_(index),
      description_(library_->record(index).description),
      lasting_id_(lasting(description_.id)),
      settings_(std::move(settings)),
      parameters_(description_.parameters),
      budget_(settings_.memory_budget),
      host_(HostSide::make(*this, library_->tenant(), lasting_id_, lasting(broker.host_name()),
                           lasting(broker.host_version()))) {}

std::unique_ptr<Instance> Instance::make(BrokerImpl& broker, std::shared_ptr<LoadedLibrary> library,
                                         std::size_t index, InstanceSettings settings) {
  const Driver& driver = broker.driver();
  const PluginDescription& plugin = library->record(index).description;
  check_driver(driver, plugin);
  check_device(driver, plugin, settings.device);
  const RealtimeWork work(*library->tenant(), realtime_call("create"));
  std::unique_ptr<Instance> made(
      new Instance(broker, std::move(library), index, std::move(settings)));
  try {
    made->take_lease();
    made->make_object();
    made->phase_.store(Phase::idle, std::memory_order_release);
    broker.add(*made);
  } catch (...) {
    end(std::move(made));
    throw;
  }
  return made;
}

// A tenant has one lease on a device: what any plug-in of the library needs counts.
LeaseRequest Instance::lease_request() const {
  LeaseRequest request;
  request.device = settings_.device;
  request.asked = settings_.lease;
  request.asked_by = settings_.lease_asked_by;
  for (const PluginDescription& one : library_->descriptions()) {
    const LeaseChoice both = stronger(request.wish, LeaseChoice(one.lease_wish));
    if (both != request.wish) request.wished_by = "plug-in " + one.short_name;
    request.wish = both;
    if ((one.flags & CTXB_PLUGIN_PER_THREAD_STREAM) != 0) {
      request.per_thread_stream = "plug-in " + one.short_name;
    }
  }
  return request;
}

LeaseInfo Instance::lease_info() const {
  LeaseInfo info = lease_->info();
  const LeaseChoice& asked = settings_.lease;
  // Another kind, or a partition of another size.
  const bool made_for_another = asked.kind != LeaseKind::automatic && asked != lease_->choice();
  if (made_for_another && info.asked != asked) {
    info.reason = "the tenant has this lease on the device already: " + info.reason;
  }
  info.asked = asked;
  return info;
}

void Instance::take_lease() {
  lease_ = broker_.leases().get(library_->tenant(), lease_request());
  generation_.store(lease_->generation(), std::memory_order_relaxed);
}

void Instance::end(std::unique_ptr<Instance> instance) noexcept {
  Instance& ending = *instance;
  BrokerImpl& broker = ending.broker_;
  if (!broker.is_in_its_process()) return keep_for_ever(instance.release());
  const auto library = ending.library_;  // longer than the turn
  std::optional<Turn> turn;
  if (ending.object_ != nullptr) {
    turn.emplace(library->main_turns(), ending.main_user("destroy"), broker.end_timeout());
  }
  if (turn && !*turn) {
    ending.tenant().log(Severity::warning, "plugin", [&] {
      return "plug-in " + ending.description_.short_name + " is not ended yet, because " +
             ending.still_runs(turn->other()) + "; Broker::poll or Broker::close ends it later";
    });
    return broker.keep(std::move(instance));
  }
  ending.end_on_main();
  turn.reset();
  if (ending.host_.end(broker.end_timeout())) return;
  ending.tenant().log(Severity::warning, "plugin", [&] {
    return "a thread of plug-in " + ending.description_.short_name +
           " is inside a call after destroy; what is left of the instance stays until the thread "
           "has left";
  });
  broker.keep(std::move(instance));
}

// In a turn of the library's.
void Instance::end_on_main() noexcept {
  deactivate();
  if (object_ != nullptr) {
    call_main(Phase::idle, nowhere(), "destroy", [&] { object_->destroy(object_); });
  }
  broker_.remove(*this);
  has_ended_ = true;
}

bool Instance::try_to_end() noexcept {
  if (has_ended_) return host_.is_left();
  {
    const Turn turn(library_->main_turns(), main_user("destroy"), std::try_to_lock);
    if (!turn) return false;
    end_on_main();
  }
  return host_.end(std::chrono::milliseconds(0));
}

Instance::~Instance() {
  for (; entered_ != nullptr; entered_ = std::move(entered_->earlier)) take_back_held(*entered_);
}

void Instance::make_object() {
  const Turn turn(library_->main_turns(), main_user("create"), broker_.end_timeout());
  if (!turn) throw busy_error("create", turn.other());
  const ctxb_plugin* made = nullptr;
  const CallOutcome outcome = call_main(Phase::creating, nowhere(), "create", [&] {
    made = library_->factory().create(static_cast<std::uint32_t>(index_), host_.host());
  });
  if (made == nullptr || !outcome.ran()) throw failure("create", outcome, CTXB_ERROR);
  const bool readable = is_valid(made, CTXB_BYTES_THROUGH(ctxb_plugin, get_extension));
  if (!readable || made->activate == nullptr || made->process == nullptr ||
      made->deactivate == nullptr || made->destroy == nullptr || made->context_lost == nullptr ||
      made->get_extension == nullptr) {
    if (readable && made->destroy != nullptr) {
      call_main(Phase::creating, nowhere(), "destroy", [&] { made->destroy(made); });
    }
    throw Error(ErrorKind::plugin_failed,
                "plug-in " + description_.short_name +
                    ": create gave an object with a wrong size or with null functions",
                {.call = "create", .device = settings_.device, .tenant = tenant().name});
  }
  object_ = made;
  state_ = extension<ctxb_state_extension>(CTXB_EXT_STATE,
                                           CTXB_BYTES_THROUGH(ctxb_state_extension, load));
  latency_ = extension<ctxb_latency_extension>(CTXB_EXT_LATENCY,
                                               CTXB_BYTES_THROUGH(ctxb_latency_extension, tail));
  parameter_text_ = extension<ctxb_parameter_text_extension>(
      CTXB_EXT_PARAMETER_TEXT, CTXB_BYTES_THROUGH(ctxb_parameter_text_extension, from_text));
  callback_ = extension<ctxb_callback_extension>(
      CTXB_EXT_CALLBACK, CTXB_BYTES_THROUGH(ctxb_callback_extension, on_main_thread));
  frames_ = extension<ctxb_frames_extension>(CTXB_EXT_FRAMES,
                                             CTXB_BYTES_THROUGH(ctxb_frames_extension, get_frames));
  if (description_.media != Media::image) return;
  regions_ = extension<ctxb_regions_extension>(
      CTXB_EXT_REGIONS, CTXB_BYTES_THROUGH(ctxb_regions_extension, get_region));
}

// The plug-in's side of an extension; null when it has none, or one that cannot be used.
template <typename Extension>
const Extension* Instance::extension(const char* id, std::size_t least_bytes) {
  const void* given = nullptr;
  call_main(Phase::creating, nowhere(), "get_extension",
            [&] { given = object_->get_extension(object_, id); });
  const auto* table = static_cast<const Extension*>(given);
  if (table == nullptr) return nullptr;
  const char* wrong = nullptr;
  if (!is_valid(table, least_bytes)) {
    wrong = "the table's size is wrong";
  } else if (!has_all_functions(table, least_bytes)) {
    wrong = "a function in the table is null";
  }
  if (wrong == nullptr) return table;
  strike("get_extension", (std::string(id) + ": " + wrong + "; not used").c_str());
  return nullptr;
}

std::string Instance::still_runs(const TurnUser& other) const {
  return std::string(other.function) + " of plug-in " + other.owner +
         " still runs on another thread after a wait of " +
         std::to_string(broker_.end_timeout().count()) +
         " ms, and plug-ins of one library are called by one thread at a time";
}

Error Instance::busy_error(const char* function, const TurnUser& other) const {
  return {ErrorKind::wrong_state,
          "plug-in " + description_.short_name + ": " + function + " was not called, because " +
              still_runs(other) +
              "; call it again when that has returned, or raise BrokerOptions::end_timeout",
          {.call = function, .device = settings_.device, .tenant = tenant().name}};
}

Error Instance::failure(const char* function, const CallOutcome& outcome,
                        ctxb_status status) const {
  if (outcome.busy) return busy_error(function, *outcome.busy);
  const Error::Origin origin{.call = function,
                             .status = status,
                             .status_name = status_name(status),
                             .device = settings_.device,
                             .tenant = tenant().name};
  const std::string who = "plug-in " + description_.short_name + ": " + function;
  if (outcome.entered != CUDA_SUCCESS) {
    return lease_->entry_error(outcome.entered,
                               who + " was not called: its lease cannot be entered");
  }
  if (outcome.threw) {
    return {ErrorKind::plugin_failed, who + " threw an exception", origin};
  }
  const FailureRecord::Both recorded = failures_.read();
  std::string why = recorded.said.text;
  if (!recorded.refused.text.empty()) {
    why += (why.empty() ? "the host refused " : " (the host refused ") + recorded.refused.text +
           (recorded.said.text.empty() ? "" : ")");
  }
  if (why.empty()) why = "it did not say why";
  if (recorded.said.driver_status != 0 &&
      recorded.refused.driver_status != recorded.said.driver_status) {
    why += " (" +
           status_text(broker_.driver().table, static_cast<CUresult>(recorded.said.driver_status)) +
           ")";
  }
  return {kind_of_status(status), who + " failed: " + why, origin};
}

bool Instance::active() const noexcept {
  const Phase now = phase();
  return now == Phase::active || now == Phase::processing || now == Phase::asked ||
         now == Phase::lost;
}

Metrics Instance::metrics() const noexcept {
  Metrics metrics;
  metrics.jobs = counters_.jobs.load(std::memory_order_relaxed);
  metrics.launches = counters_.launches.load(std::memory_order_relaxed);
  metrics.graph_jobs = counters_.graph_jobs.load(std::memory_order_relaxed);
  metrics.late_jobs = counters_.late_jobs.load(std::memory_order_relaxed);
  metrics.device_seconds =
      static_cast<double>(counters_.device_nanoseconds.load(std::memory_order_relaxed)) * 1e-9;
  metrics.memory_bytes = budget_.held();
  metrics.memory_peak_bytes = budget_.peak();
  metrics.strikes = counters_.strikes.load(std::memory_order_relaxed);
  return metrics;
}

void Instance::poll() noexcept {
  const Turn turn(library_->main_turns(), main_user("context_lost"), std::try_to_lock);
  if (!turn) return;
  // A job that runs now ends with an error, and the graph's next one renews the activation.
  Phase idle = Phase::active;
  if (lease_->lost() && phase_.compare_exchange_strong(idle, Phase::lost)) tell_loss();
  answer_callback();
}

void Instance::answer_callback() noexcept {
  if (!callback_asked_.exchange(false, std::memory_order_acq_rel)) return;
  if (callback_ == nullptr) return;
  call_main(nowhere(), "on_main_thread", [&] { callback_->on_main_thread(object_); });
}

bool Instance::is_main_thread() const noexcept {
  const std::thread::id running = main_thread_.load(std::memory_order_acquire);
  const std::thread::id here = std::this_thread::get_id();
  return here == running || (running == std::thread::id() && here == broker_.main_thread());
}

bool Instance::is_process_thread() const noexcept {
  return process_thread_.load(std::memory_order_acquire) == std::this_thread::get_id();
}

void Instance::strike(const char* function, const char* what) noexcept {
  detail::strike(tenant(), &counters_.strikes, function, what);
}

std::uint64_t Instance::ask_frames(const char* function, std::uint64_t (*ask)(const ctxb_plugin*)) {
  std::uint64_t frames = 0;
  const CallOutcome outcome = call_main(nowhere(), function, [&] { frames = ask(object_); });
  if (!outcome.ran()) throw failure(function, outcome, CTXB_ERROR);
  return frames;
}

std::uint64_t Instance::latency_frames() {
  if (!active() || latency_ == nullptr) return 0;
  std::optional<std::uint64_t>& latency = activation_->latency;
  if (!latency) latency = ask_frames("latency", latency_->latency);
  return *latency;
}

std::uint64_t Instance::tail_frames() {
  return !active() || latency_ == nullptr ? 0 : ask_frames("tail", latency_->tail);
}

}  // namespace ctxbroker::detail
