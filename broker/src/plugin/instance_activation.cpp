// Instance: activate and deactivate.
#include <cmath>
#include <utility>

#include "ctxbroker/error.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/instance.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::uint64_t largest_buffer = std::uint64_t{1} << 40;  // bytes; more is a mistake

void check_sizes(const ActivationSizes& sizes) {
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
}

}  // namespace

void Instance::activate(const ActivationSizes& sizes) {
  if (phase() != Phase::idle) {
    throw Error(ErrorKind::wrong_state,
                "plug-in " + description_.short_name + " is active already; deactivate it first");
  }
  check_sizes(sizes);
  renew_lost_lease();
  activation_ = make_activation(lease_, plugin(), sizes);
  const DeviceInfo& device =
      lease_->driver().devices[static_cast<std::size_t>(lease_->device_ordinal())];
  ctxb_activation given{};
  given.size = sizeof given;
  given.device = device.ordinal;
  given.compute_major = static_cast<std::uint32_t>(device.compute_major);
  given.compute_minor = static_cast<std::uint32_t>(device.compute_minor);
  given.generation = lease_->generation();
  given.memory_budget = options_.memory_budget;
  given.max_width = sizes.max_width;
  given.max_height = sizes.max_height;
  given.realtime = sizes.realtime ? 1 : 0;
  given.sample_rate = sizes.sample_rate;
  given.stream = activation_->stream.get();
  given.parameters = parameters_.data();
  given.parameter_count = static_cast<std::uint32_t>(parameters_.size());
  ctxb_status status = CTXB_ERROR;
  const CallOutcome outcome = call_main(Phase::activating, lease_->target(), "activate",
                                        [&] { status = object_->activate(object_, &given); });
  if (outcome.ran() && status == CTXB_OK) {
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
  lease_ = broker_.leases().get(library_->tenant(), lease_request());
}

void Instance::deactivate() noexcept {
  if (phase() != Phase::active) return;
  answer_callback();
  const DriverTable& driver = lease_->table();
  if (!lease_->lost()) {
    lease_->note(guarded(lease_->target(), {},
                         [&] { return driver.stream_synchronize(activation_->stream.get()); }));
  }
  phase_.store(Phase::idle, std::memory_order_release);
  if (lease_->lost()) {
    end_lost_activation();
    return;
  }
  call_main(Phase::deactivating, lease_->target(), "deactivate",
            [&] { object_->deactivate(object_); });
  if (ledger_.bytes() != 0) {
    strike("deactivate", ("forgot " + std::to_string(ledger_.bytes()) +
                          " bytes of device memory; the host gave them back")
                             .c_str());
  }
  end_activation();
}

// After a failed activate, or a deactivate: nothing of the activation stays.
void Instance::end_activation() noexcept {
  take_back_memory();
  activation_.reset();
}

void Instance::take_back_memory() noexcept {
  if (lease_->lost()) {
    ledger_.forget_all();
    return;
  }
  try {
    const Guard guard(lease_->target());
    if (guard.status() != CUDA_SUCCESS) {
      report_failed_end(*lease_, guard.status());
      ledger_.forget_all();
      return;
    }
    // A failed activate may have work in flight on what is about to be freed.
    lease_->note(lease_->table().stream_synchronize(activation_->stream.get()));
    report_failed_end(*lease_, ledger_.give_back_all().status);
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; the context's end frees the rest
  }
}

// The context is gone: the plug-in forgets, the broker forgets, nobody calls the driver.
void Instance::end_lost_activation() noexcept {
  call_main(Phase::deactivating, nowhere(), "context_lost",
            [&] { object_->context_lost(object_); });
  call_main(Phase::deactivating, nowhere(), "deactivate", [&] { object_->deactivate(object_); });
  ledger_.forget_all();
  activation_.reset();
}

}  // namespace ctxbroker::detail
