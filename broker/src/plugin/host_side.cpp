// SPDX-License-Identifier: Apache-2.0
#include "plugin/host_side.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "context/tenant_identity.hpp"
#include "plugin/broker_impl.hpp"
#include "plugin/foreign_text.hpp"
#include "plugin/host_call.hpp"
#include "plugin/instance.hpp"
#include "plugin/state_streams.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::array<std::pair<const char*, const void*>, 4> extensions{{
    {CTXB_EXT_GPU, &gpu_extension},
    {CTXB_EXT_LAUNCH, &launch_extension},
    {CTXB_EXT_NATIVE_CONTEXT, &native_context_extension},
    {CTXB_EXT_THREAD_CHECK, &thread_check_extension},
}};

// None of these throws: they are called by a plug-in across the C boundary.
const void* get_extension(const ctxb_host* host, const char* id) {
  // An ended instance gets the table as well, because a plug-in may call its functions without a
  // look at it. They refuse.
  const InstanceUse used(host, "get_extension");
  if (host == nullptr || id == nullptr) return nullptr;
  for (const auto& [known, table] : extensions) {
    if (std::strcmp(known, id) == 0) return table;
  }
  return nullptr;
}

void log(const ctxb_host* host, std::uint32_t severity, const char* text) {
  const InstanceUse used(host, "log");
  if (used.instance() == nullptr) return;
  const HostFrame frame;
  try {
    used.instance()->tenant().log(
        static_cast<Severity>(std::min<std::uint32_t>(severity, CTXB_LOG_ERROR)), "plugin",
        take_message(text));
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
  }
}

ctxb_status fail(const ctxb_host* host, ctxb_status status, std::int32_t driver_status,
                 const char* text) {
  const InstanceUse used(host, "fail");
  if (used.instance() == nullptr) return status;
  const HostFrame frame;
  try {
    used.instance()->failures().plugin_said({status, driver_status, take_message(text)});
  } catch (...) {  // NOLINT(bugprone-empty-catch): the status still tells of the failure
  }
  return status;
}

void request_callback(const ctxb_host* host) {
  const InstanceUse used(host, "request_callback");
  if (used.instance() != nullptr) used.instance()->ask_callback();
}

void request_restart(const ctxb_host* host) {
  const InstanceUse used(host, "request_restart");
  if (used.instance() != nullptr) used.instance()->ask_restart();
}

ctxb_status get_native_context(const ctxb_host* host, void** context, std::int32_t* device) {
  constexpr unsigned int with_context =
      in(Phase::activating) | in(Phase::active) | in(Phase::processing) | in(Phase::deactivating);
  return host_call(host, "native-context", with_context,
                   [&](Instance& instance, Activation& activation) {
                     if (context == nullptr || device == nullptr) {
                       return refuse_breach(instance, CTXB_ERROR_INVALID_ARGUMENT, "native-context",
                                            "context or device is null");
                     }
                     CUcontext current = nullptr;
                     const Lease& lease = *activation.lease;
                     const CUresult status = lease.table().ctx_get_current(&current);
                     *context = current;
                     *device = lease.device_ordinal();
                     // Behind the gate, one handle for all threads, also where they are in contexts
                     // of their own.
                     GatedTenant* const gated = lease.tenant().gated.load();
                     if (gated != nullptr && lease.has_context(current)) {
                       *context = lease.context();
                       gated->note_told(lease.device_ordinal());
                     }
                     return answer(instance, "native-context", status);
                   });
}

std::uint32_t is_main_thread(const ctxb_host* host) {
  const InstanceUse used(host, "is_main_thread");
  return used.instance() != nullptr && used.instance()->is_main_thread() ? 1 : 0;
}

std::uint32_t is_process_thread(const ctxb_host* host) {
  const InstanceUse used(host, "is_process_thread");
  return used.instance() != nullptr && used.instance()->is_process_thread() ? 1 : 0;
}

constexpr std::uint32_t ended_bit = std::uint32_t{1} << 31;  // in the count of calls

// All that there ever were. Memory that stays is not a leak while something points to it.
constinit std::atomic<HostSide*> newest_side{nullptr};

// Waits until `is_left` says so, at most for `limit`.
template <typename IsLeft>
bool wait_until(std::chrono::milliseconds limit, const IsLeft& is_left) noexcept {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!is_left()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

}  // namespace

const ctxb_native_context_extension native_context_extension{sizeof(ctxb_native_context_extension),
                                                             get_native_context};

const ctxb_thread_check_extension thread_check_extension{sizeof(ctxb_thread_check_extension),
                                                         is_main_thread, is_process_thread};

constinit thread_local const HostSide* running_side = nullptr;

HostSide::HostSide(Instance& instance, std::weak_ptr<const TenantIdentity> tenant,
                   const char* plugin, const char* host_name, const char* host_version)
    : instance_(&instance), tenant_(std::move(tenant)), plugin_(plugin) {
  host_.size = sizeof host_;
  host_.abi_major = CTXB_ABI_MAJOR;
  host_.abi_minor = CTXB_ABI_MINOR;
  host_.name = host_name;
  host_.version = host_version;
  host_.get_extension = get_extension;
  host_.log = log;
  host_.fail = fail;
  host_.request_callback = request_callback;
  host_.request_restart = request_restart;
}

HostSide& HostSide::make(Instance& instance, std::weak_ptr<const TenantIdentity> tenant,
                         const char* plugin, const char* host_name, const char* host_version) {
  static_assert(std::is_standard_layout_v<HostSide>,
                "its address must be that of the first member");
  auto* const side = new HostSide(instance, std::move(tenant), plugin, host_name, host_version);
  side->next_ = newest_side.load(std::memory_order_relaxed);
  while (!newest_side.compare_exchange_weak(side->next_, side, std::memory_order_release,
                                            std::memory_order_relaxed)) {
  }
  return *side;
}

StateStreams& HostSide::streams() {
  if (streams_ == nullptr) streams_ = new StateStreams(host());
  return *streams_;
}

bool HostSide::end(std::chrono::milliseconds limit) noexcept {
  calls_.fetch_or(ended_bit, std::memory_order_acq_rel);
  return wait_until(limit, [this] { return is_left(); });
}

bool HostSide::is_left() const noexcept {
  return (calls_.load(std::memory_order_acquire) & ~ended_bit) == 0;
}

bool HostSide::wait_until_activation_is_left(std::chrono::milliseconds limit) noexcept {
  // Writes, so that a call which is not counted here sees the phase that refuses it.
  calls_in_activation_.fetch_add(0, std::memory_order_acq_rel);
  return wait_until(limit,
                    [this] { return calls_in_activation_.load(std::memory_order_acquire) == 0; });
}

void HostSide::strike_late_call(const char* function) const noexcept {
  const auto tenant = tenant_.lock();
  if (tenant == nullptr) return;  // its broker has gone, and nobody is there to be told
  const HostFrame frame;
  char text[256];
  std::snprintf(text, sizeof text,
                "refused, because this instance of plug-in %s was destroyed; end the plug-in's "
                "threads, at the latest, in destroy",
                plugin_);
  strike(*tenant, nullptr, function, text);
}

void InstanceUse::enter(const ctxb_host* host, const char* function, Of of) noexcept {
  auto* const side = const_cast<HostSide*>(reinterpret_cast<const HostSide*>(host));
  if ((side->calls_.fetch_add(1, std::memory_order_acq_rel) & ended_bit) != 0) {
    side->calls_.fetch_sub(1, std::memory_order_release);
    side->strike_late_call(function);
    return;
  }
  side_ = side;
  instance_ = side->instance_;
  in_activation_ = of == Of::activation;
  if (in_activation_) side->calls_in_activation_.fetch_add(1, std::memory_order_acq_rel);
}

void InstanceUse::leave() noexcept {
  if (in_activation_) side_->calls_in_activation_.fetch_sub(1, std::memory_order_release);
  side_->calls_.fetch_sub(1, std::memory_order_release);
}

}  // namespace ctxbroker::detail
