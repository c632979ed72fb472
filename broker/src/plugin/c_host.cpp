// SPDX-License-Identifier: Apache-2.0
// host.h: errors, and how options are read.
#include "plugin/c_host.hpp"

#include <cstdlib>
#include <utility>

#include "ctxbroker/version.hpp"
#include "process/thread_end.hpp"

namespace ctxbroker::detail {
namespace {

// The calling thread's last error: a C function has no other way to hand out a text that the caller
// need not free. It is used at the very end of a thread too.
constinit thread_local char* last_error = nullptr;

static_assert(code(Severity::debug) == CTXB_LOG_DEBUG && code(Severity::info) == CTXB_LOG_INFO &&
              code(Severity::warning) == CTXB_LOG_WARNING &&
              code(Severity::error) == CTXB_LOG_ERROR);
static_assert(code(LeaseKind::automatic) == CTXB_LEASE_AUTO &&
              code(LeaseKind::shared) == CTXB_LEASE_SHARED &&
              code(LeaseKind::private_own) == CTXB_LEASE_PRIVATE &&
              code(LeaseKind::green) == CTXB_LEASE_GREEN &&
              code(LeaseKind::worker) == CTXB_LEASE_WORKER);
static_assert(code(LeaseState::ready) == CTXB_STATE_READY &&
              code(LeaseState::lost) == CTXB_STATE_LOST &&
              code(LeaseState::ended) == CTXB_STATE_ENDED &&
              code(LeaseState::hung) == CTXB_STATE_HUNG);

Policy read_policy_of(const ctxb_broker_options& given) {
  check_argument(given.policy_file == nullptr || given.policy_text == nullptr,
                 "both policy_file and policy_text are given; leave one of them null");
  if (given.policy_file != nullptr) return read_policy(given.policy_file);
  if (given.policy_text != nullptr) return parse_policy(given.policy_text, "policy_text");
  return {};
}

DriverChoice read_driver(const char* text) {
  const auto choice = parse_driver_choice(text);
  if (!choice) {
    throw Error(ErrorKind::driver_choice,
                "\"" + std::string(text) + "\" is not a driver; use auto, nvidia or software");
  }
  return *choice;
}

}  // namespace

ctxb_status fail(ctxb_status status, const char* text) noexcept {
  static const ThreadEnd end([](void* ended) {
    last_error = nullptr;
    std::free(ended);
  });
  // A text that cannot be kept must not leave an older one in its place.
  std::free(last_error);
  last_error = strdup(text);
  end.watch(last_error);
  return status;
}

ctxb_status status_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument:
    case ErrorKind::driver_choice:
    case ErrorKind::policy:
    case ErrorKind::unknown_parameter:
    case ErrorKind::parameter_value:
    case ErrorKind::preset:
      return CTXB_ERROR_INVALID_ARGUMENT;
    case ErrorKind::wrong_state:
      return CTXB_ERROR_WRONG_STATE;
    case ErrorKind::no_driver:
    case ErrorKind::no_device:
    case ErrorKind::lease_unavailable:
    case ErrorKind::plugin_not_found:
    case ErrorKind::needs_gpu:
      return CTXB_ERROR_UNAVAILABLE;
    case ErrorKind::out_of_memory:
      return CTXB_ERROR_OUT_OF_DEVICE_MEMORY;
    case ErrorKind::out_of_host_memory:
      return CTXB_ERROR_OUT_OF_HOST_MEMORY;
    case ErrorKind::system_limit:
      return CTXB_ERROR_SYSTEM_LIMIT;
    case ErrorKind::over_limit:
      return CTXB_ERROR_UNSUPPORTED;
    case ErrorKind::context_lost:
      return CTXB_ERROR_CONTEXT_LOST;
    case ErrorKind::driver_call:
      return CTXB_ERROR_DRIVER;
    case ErrorKind::kernel_image:
      return CTXB_ERROR_NO_KERNEL_IMAGE;
    case ErrorKind::plugin_version:
      return CTXB_ERROR_VERSION;
    default:
      return CTXB_ERROR;
  }
}

std::optional<std::uint64_t> read_limit(std::uint64_t given) {
  if (given == 0) return std::nullopt;
  return given == UINT64_MAX ? 0 : given;
}

bool read_flag(std::uint32_t given, const char* member) {
  if (given > 1) {
    throw Error(ErrorKind::invalid_argument,
                std::string(member) + " is " + std::to_string(given) + "; it has to be 0 or 1");
  }
  return given == 1;
}

LeaseChoice read_lease(std::uint32_t kind, std::uint32_t multiprocessors) {
  check_argument(
      multiprocessors == 0 || kind == CTXB_LEASE_GREEN,
      "multiprocessors is given, but only CTXB_LEASE_GREEN has multiprocessors of its own");
  if (kind <= CTXB_LEASE_GREEN) return {static_cast<LeaseKind>(kind), multiprocessors};
  throw Error(ErrorKind::invalid_argument,
              "lease " + std::to_string(kind) +
                  " cannot be asked for; use CTXB_LEASE_AUTO, _SHARED, _PRIVATE or _GREEN");
}

void give_lease(ctxb_lease_info* info, const LeaseInfo& lease, const char* tenant,
                std::map<std::uint64_t, std::string>& reasons) {
  ctxb_lease_info whole{};
  whole.device = lease.device;
  whole.kind = code(lease.granted.kind);
  whole.multiprocessors = lease.granted.multiprocessors;
  whole.asked_kind = code(lease.asked.kind);
  whole.asked_multiprocessors = lease.asked.multiprocessors;
  whole.state = code(lease.state);
  whole.generation = lease.generation;
  whole.context = lease.context;
  whole.tenant = tenant;
  whole.reason = reasons.try_emplace(lease.generation, lease.reason).first->second.c_str();
  give(info, whole, "info is null, or its size is not sizeof(ctxb_lease_info)");
}

BrokerOptions read(const ctxb_broker_options* options) {
  BrokerOptions wanted;
  if (options == nullptr) return wanted;
  const ctxb_broker_options given =
      taken(options, "the options' size is not sizeof(ctxb_broker_options)");
  if (given.host_name != nullptr) wanted.host_name = given.host_name;
  if (given.host_version != nullptr) wanted.host_version = given.host_version;
  if (given.driver != nullptr) wanted.driver = read_driver(given.driver);
  if (given.software_device != nullptr) wanted.software_device = given.software_device;
  wanted.ready.green = given.ready_green;
  wanted.ready.private_own = given.ready_private;
  if (given.ready_bytes != 0) wanted.ready.memory_budget = given.ready_bytes;
  if (given.record != nullptr) {
    wanted.records = [record = given.record, data = given.record_data](const Record& one) {
      record(data, code(one.severity), one.tenant.value, one.tenant_name.c_str(), one.topic,
             one.text.c_str());
    };
  }
  wanted.policy = read_policy_of(given);
  wanted.use_gate = !read_flag(given.without_gate, "without_gate");
  wanted.job_timeout = std::chrono::milliseconds(given.job_timeout_ms);
  if (given.end_timeout_ms != 0) {
    wanted.end_timeout = std::chrono::milliseconds(given.end_timeout_ms);
  }
  wanted.host = read(given.host);
  return wanted;
}

TenantOptions read(const ctxb_tenant_options* options) {
  TenantOptions wanted;
  if (options == nullptr) return wanted;
  const ctxb_tenant_options given =
      taken(options, "the options' size is not sizeof(ctxb_tenant_options)");
  wanted.lease = read_lease(given.lease, given.multiprocessors);
  wanted.per_thread_streams = read_flag(given.per_thread_streams, "per_thread_streams");
  wanted.unload_at_close = read_flag(given.unload_at_close, "unload_at_close");
  check_argument(given.memory <= CTXB_MEMORY_POOL,
                 "memory is not CTXB_MEMORY_AUTO, _DRIVER or _POOL");
  wanted.memory = static_cast<MemorySource>(given.memory);
  wanted.pinned_ahead = given.pinned_ahead;
  wanted.driver_memory_budget = given.driver_memory_budget;
  wanted.driver_limits = {read_limit(given.pinned_memory_limit), read_limit(given.stream_limit),
                          read_limit(given.event_limit),         read_limit(given.graph_limit),
                          read_limit(given.module_limit),        read_limit(given.context_limit)};
  if (given.on_loss != nullptr) {
    wanted.on_loss = [tell = given.on_loss, data = given.on_loss_data](const LeaseLoss& one) {
      const ctxb_lease_loss loss{
          sizeof loss,    one.tenant.value,  one.device, static_cast<std::uint32_t>(one.reason),
          one.generation, one.driver_status, 0,          one.text.c_str()};
      tell(data, &loss);
    };
  }
  return wanted;
}

}  // namespace ctxbroker::detail

const char* ctxb_version(void) {
  return ctxbroker::version();
}

const char* ctxb_last_error(void) {
  const char* const text = ctxbroker::detail::last_error;
  return text != nullptr ? text : "";
}
