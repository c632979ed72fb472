// SPDX-License-Identifier: Apache-2.0
// Instance: activate and deactivate.
#include <cmath>
#include <utility>

#include "context/realtime_session.hpp"
#include "context/timed_wait.hpp"
#include "ctxbroker/error.hpp"
#include "ledger/ledger.hpp"
#include "module/module_service.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/instance.hpp"
#include "plugin/loss.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t largest_buffer = std::uint64_t{1} << 40;  // bytes; more is a mistake

void check_sizes(const ActivationSizes& sizes, Media media) {
  const auto refuse = [](const char* why) { throw Error(ErrorKind::invalid_argument, why); };
  if (sizes.max_width == 0 || sizes.max_height == 0) {
    refuse("max_width and max_height must be at least 1");
  }
  if (std::uint64_t{sizes.max_width} * sizes.max_height > largest_buffer / 16) {
    refuse("max_width times max_height is absurd");
  }
  if (!std::isfinite(sizes.sample_rate) || sizes.sample_rate < 0) {
    refuse("sample_rate must be a finite number of Hz, 0 for images");
  }
  if (media == Media::audio && sizes.sample_rate == 0) {
    refuse("sample_rate is 0, but audio needs the rate of its samples in Hz (48000, for example)");
  }
}

bool are_equal(const ActivationSizes& a, const ActivationSizes& b) {
  return a.max_width == b.max_width && a.max_height == b.max_height &&
         a.sample_rate == b.sample_rate && a.realtime == b.realtime;
}

// Loads the plug-in's modules and creates the rest. Inside the gate of `at`.
std::unique_ptr<Activation> make_activation(const std::shared_ptr<LeaseModules>& at,
                                            ModuleService& service, const PluginRecord& plugin,
                                            const ActivationSizes& sizes) {
  const bool real_time = sizes.realtime || (plugin.description.flags & CTXB_PLUGIN_REALTIME) != 0;
  auto activation = std::make_unique<Activation>();
  activation->lease = at->lease();
  activation->sizes = sizes;
  activation->serial = next_generation();
  activation->modules =
      std::make_unique<ModuleSet>(service, at, plugin.modules, activation->kernels, real_time);
  activation->modules->set_before_forget([graph = &activation->job_graph] { graph->forget(); });
  activation->modules->load();
  activation->make_staging(1);
  activation->stream = record(create_stream(activation->lease), activation->holder());
  activation->modules->set_stream(activation->stream);
  return activation;
}

}  // namespace

void Activation::make_staging(std::size_t jobs) {
  if (jobs <= staging_jobs) return;
  staging = make_pinned_memory(lease, jobs * std::uint64_t{CTXB_UPLOAD_MAX});
  staging_jobs = jobs;
}

void Instance::activate(const ActivationSizes& sizes) {
  const Turn turn(library_->main_turns(), main_user("activate"), broker_.end_timeout());
  if (!turn) throw busy_error("activate", turn.other());
  if (phase() != Phase::idle) {
    throw Error(ErrorKind::wrong_state,
                "plug-in " + description_.short_name + " is active already; deactivate it first");
  }
  check_sizes(sizes, description_.media);
  const RealtimeWork work(tenant(), realtime_call("activate"));
  renew_lost_lease();
  modules_ = broker_.modules().at(lease_);
  const UseScope use(modules_->gate());
  activation_ = make_activation(modules_, broker_.modules(), plugin(), sizes);
  activation_->job_graph.want(settings_.job_graphs);
  restart_asked_.store(false, std::memory_order_release);
  const DeviceInfo& device =
      lease_->driver().devices[static_cast<std::size_t>(lease_->device_ordinal())];
  ctxb_activation given{};
  given.size = sizeof given;
  given.device = device.ordinal;
  given.compute_major = static_cast<std::uint32_t>(device.compute_major);
  given.compute_minor = static_cast<std::uint32_t>(device.compute_minor);
  given.generation = lease_->generation();
  given.memory_budget = settings_.memory_budget;
  given.max_width = sizes.max_width;
  given.max_height = sizes.max_height;
  given.realtime = sizes.realtime ? 1 : 0;
  given.sample_rate = sizes.sample_rate;
  given.stream = activation_->stream;
  given.parameters = parameters_.take_snapshot();
  given.parameter_count = parameters_.count();
  const std::uint64_t launched = launches();
  ctxb_status status = CTXB_ERROR;
  const CallOutcome outcome = call_main(Phase::activating, lease_->target(), "activate",
                                        [&] { status = object_->activate(object_, &given); });
  count_launches_since(launched, *lease_);
  lease_->report_status(outcome.entered);
  if (outcome.ran() && status == CTXB_OK) {
    // An activation by the host after a failed renewal, with the same sizes, is that renewal.
    if (!renewal_ || !are_equal(*renewal_, sizes)) ++times_activated_;
    renewal_.reset();
    phase_.store(Phase::active, std::memory_order_release);
    answer_callback();
    return;
  }
  Error error = failure("activate", outcome, status);
  end_activation();
  throw error;
}

void Instance::renew_lost_lease() {
  if (!lease_->lost()) return;
  take_lease();
}

bool Instance::watches_files() const noexcept {
  const auto& modules = plugin().modules;
  return std::any_of(modules.begin(), modules.end(),
                     [](const ModuleImage& module) { return module.development; });
}

bool Instance::take_changed_files() {
  if (activation_ == nullptr || activation_->sizes.realtime) return false;
  if (RealtimeSession::anywhere()) return false;  // a poll after the session sees the change
  {
    const UseScope use(modules_->gate());
    if (!activation_->modules->look_at_files(broker_.end_timeout())) return false;
  }
  renew();
  return true;
}

void Instance::renew() {
  const Turn turn(library_->main_turns(), main_user("activate"), broker_.end_timeout());
  if (!turn) throw busy_error("activate", turn.other());
  const ActivationSizes sizes = activation_ != nullptr ? activation_->sizes : *renewal_;
  deactivate();
  renewal_ = sizes;
  activate(sizes);
}

void Instance::deactivate() noexcept {
  const Phase now = phase();
  if (now != Phase::active && now != Phase::lost && !renewal_) return;
  const Turn turn(library_->main_turns(), main_user("deactivate"), broker_.end_timeout());
  if (!turn) {
    tenant().log(Severity::warning, "plugin", [&] {
      return "plug-in " + description_.short_name + " stays active, because " +
             still_runs(turn.other());
    });
    return;
  }
  renewal_.reset();
  const Phase before = phase();
  if (before != Phase::active && before != Phase::lost) return;
  const RealtimeWork work(tenant(), realtime_call("deactivate"));
  const auto modules = modules_;
  const UseScope use(modules->gate());
  answer_callback();
  if (lease_->can_wait()) wait_for_work();
  phase_.store(Phase::idle, std::memory_order_release);
  CallOutcome outcome{CUDA_ERROR_CONTEXT_IS_DESTROYED};
  if (!lease_->lost()) {
    outcome = call_main(Phase::deactivating, lease_->target(), "deactivate",
                        [&] { object_->deactivate(object_); });
    lease_->report_status(outcome.entered);
  }
  if (outcome.entered != CUDA_SUCCESS) {  // the plug-in was not called
    end_lost_activation(before == Phase::lost || !lease_->lost());
    return;
  }
  // After a loss, the host has refused to release. Nothing was refused if there is none by now.
  // Nor did it forget what the driver has refused to release.
  const std::uint64_t held = budget_.held(),
                      refused = ledger().refused_bytes(activation_->holder());
  if (held > refused && !lease_->lost()) {
    strike("deactivate", ("forgot " + std::to_string(held - refused) +
                          " bytes of device memory; the host gave them back")
                             .c_str());
  }
  end_activation();
}

// Work that does not end in its time makes the lease hung.
void Instance::wait_for_work() noexcept {
  const ScopedSpan span(SpanCategory::wait, "wait", description_.short_name.c_str(), tenant().id);
  const CUresult status = lease_->report_status(guarded(lease_->target(), {}, [&] {
    return wait_for(lease_->table(), activation_->stream, broker_.end_timeout());
  }));
  if (status == CUDA_ERROR_TIMEOUT) hang(*lease_, activation_->stream);
  if (status == CUDA_SUCCESS) set_in_flight(false);
}

// Its suspects are counted before its lease becomes one of them.
void Instance::hang(Lease& lease, CUstream stream) noexcept {
  try {
    if (!lease.is_hung()) hung_alone_ = in_flight() && broker_.count_suspects() == 1;
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory: it is not known
  }
  lease.hang(stream);
}

// After a failed activate, or a deactivate: nothing of the activation stays.
void Instance::end_activation() noexcept {
  // A failed activate may have work in flight on what is about to be freed.
  if (in_flight() && lease_->can_wait()) wait_for_work();
  release_activation();
}

// A call that another thread of the plug-in is inside of keeps the activation.
void Instance::release_activation() noexcept {
  if (host_.wait_until_activation_is_left(broker_.end_timeout())) {
    take_back_held(*activation_);
    activation_.reset();
  } else {
    tenant().log(Severity::warning, "plugin", [&] {
      return "a thread of plug-in " + description_.short_name +
             " is inside a call after deactivate; what the activation holds stays until the "
             "instance has ended and the thread has left";
    });
    activation_->earlier = std::move(entered_);
    entered_ = std::move(activation_);
  }
  budget_.clear();
}

void Instance::take_back_held(const Activation& activation) noexcept {
  try {
    give_back(activation.holder(), {tenant(), activation.lease->table()});
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; the context's end frees the rest
  }
}

// The lease is lost, or cannot be entered. The plug-in forgets; the broker gives back what outlives
// the context, and forgets the rest.
void Instance::end_lost_activation(bool told) noexcept {
  if (!told) tell_loss();
  call_main(Phase::deactivating, nowhere(), "deactivate", [&] { object_->deactivate(object_); });
  release_activation();
  set_in_flight(false);
}

// Once for each activation.
void Instance::tell_loss() noexcept {
  try {
    const Loss loss = describe_loss(*this);
    if (loss.reason == CTXB_LOSS_FAULT && loss.guilt == CTXB_GUILT_GUILTY) {
      tenant().log(Severity::warning, "plugin",
                   description_.short_name +
                       " is taken for the cause of the fault: no other work is known of");
    }
    const ctxb_loss given{sizeof(ctxb_loss), loss.reason, loss.guilt, loss.driver_status,
                          loss.text.c_str()};
    call_main(nowhere(), "context_lost", [&] { object_->context_lost(object_, &given); });
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for the words
  }
}

}  // namespace ctxbroker::detail
