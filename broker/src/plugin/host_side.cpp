// SPDX-License-Identifier: Apache-2.0
#include "plugin/host_side.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "plugin/broker_impl.hpp"
#include "plugin/foreign_text.hpp"
#include "plugin/host_call.hpp"
#include "plugin/instance.hpp"

namespace ctxbroker::detail {
namespace {

constexpr std::array<std::pair<const char*, const void*>, 4> extensions{{
    {CTXB_EXT_GPU, &gpu_extension},
    {CTXB_EXT_LAUNCH, &launch_extension},
    {CTXB_EXT_NATIVE_CONTEXT, &native_context_extension},
    {CTXB_EXT_THREAD_CHECK, &thread_check_extension},
}};

const void* get_extension(const ctxb_host* host, const char* id) {
  if (host == nullptr || id == nullptr) return nullptr;
  for (const auto& [known, table] : extensions) {
    if (std::strcmp(known, id) == 0) return table;
  }
  return nullptr;
}

// None of these throws: they are called by a plug-in across the C boundary.
void log(const ctxb_host* host, std::uint32_t severity, const char* text) {
  Instance* instance = instance_of(host);
  if (instance == nullptr) return;
  const HostFrame frame;
  try {
    instance->tenant().log(static_cast<Severity>(std::min<std::uint32_t>(severity, CTXB_LOG_ERROR)),
                           "plugin", take_message(text));
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory for a log line
  }
}

ctxb_status fail(const ctxb_host* host, ctxb_status status, std::int32_t driver_status,
                 const char* text) {
  Instance* instance = instance_of(host);
  if (instance == nullptr) return status;
  const HostFrame frame;
  try {
    instance->failures().plugin_said({status, driver_status, take_message(text)});
  } catch (...) {  // NOLINT(bugprone-empty-catch): the status still tells of the failure
  }
  return status;
}

void request_callback(const ctxb_host* host) {
  Instance* instance = instance_of(host);
  if (instance != nullptr) instance->ask_callback();
}

void request_restart(const ctxb_host* host) {
  Instance* instance = instance_of(host);
  if (instance != nullptr) instance->ask_restart();
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
  const Instance* instance = instance_of(host);
  return instance != nullptr && instance->is_main_thread() ? 1 : 0;
}

std::uint32_t is_process_thread(const ctxb_host* host) {
  const Instance* instance = instance_of(host);
  return instance != nullptr && instance->is_process_thread() ? 1 : 0;
}

}  // namespace

const ctxb_native_context_extension native_context_extension{sizeof(ctxb_native_context_extension),
                                                             get_native_context};

const ctxb_thread_check_extension thread_check_extension{sizeof(ctxb_thread_check_extension),
                                                         is_main_thread, is_process_thread};

HostSide make_host_side(Instance& instance, const char* name, const char* version) noexcept {
  HostSide side{};
  side.host.size = sizeof side.host;
  side.host.abi_major = CTXB_ABI_MAJOR;
  side.host.abi_minor = CTXB_ABI_MINOR;
  side.host.name = name;
  side.host.version = version;
  side.host.get_extension = get_extension;
  side.host.log = log;
  side.host.fail = fail;
  side.host.request_callback = request_callback;
  side.host.request_restart = request_restart;
  side.instance = &instance;
  return side;
}

}  // namespace ctxbroker::detail
