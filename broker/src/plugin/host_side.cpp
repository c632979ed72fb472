#include "plugin/host_side.hpp"

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "plugin/broker_impl.hpp"
#include "plugin/foreign_text.hpp"
#include "plugin/instance.hpp"
#include "plugin/status_text.hpp"

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

Severity severity_of(std::uint32_t severity) noexcept {
  switch (severity) {
    case CTXB_LOG_DEBUG:
      return Severity::debug;
    case CTXB_LOG_INFO:
      return Severity::info;
    case CTXB_LOG_WARNING:
      return Severity::warning;
    default:
      return Severity::error;
  }
}

// None of these throws: they are called by a plug-in across the C boundary.
void log(const ctxb_host* host, std::uint32_t severity, const char* text) {
  Instance* instance = instance_of(host);
  if (instance == nullptr) return;
  const HostFrame frame;
  try {
    instance->broker().recorder().record(severity_of(severity), instance->tenant().id,
                                         instance->tenant().name, "plugin", take_message(text));
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

}  // namespace

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
  side.instance = &instance;
  return side;
}

}  // namespace ctxbroker::detail
