// The C functions of ctxbroker/host.h over the C++ classes.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/host.h"
#include "ctxbroker/plugin.h"
#include "ctxbroker/tenant.hpp"
#include "plugin/struct_check.hpp"

struct ctxb_library {
  ctxbroker::AdoptedLibrary library;
};

struct ctxb_broker {
  ctxbroker::Broker broker;
  ctxbroker::GateInfo gate;
  std::vector<const char*> tools;  // the gate's, and a null
};

struct ctxb_tenant {
  ctxbroker::Tenant tenant;
  ctxbroker::Broker* broker;
  std::vector<std::unique_ptr<ctxb_library>> libraries;
};

namespace ctxbroker {
namespace {

static_assert(sizeof(Guard) <= sizeof(ctxb_guard) && alignof(Guard) <= alignof(ctxb_guard));

// The calling thread's last error: a C function has no other way to hand out a text that the caller
// need not free. Only a pointer is kept per thread (see context/guard.cpp), plain, because it is
// used at the very end of a thread too: what fails after the owner has ended is left to the
// process.
thread_local char* last_error = nullptr;

struct LastErrorOwner {
  ~LastErrorOwner() {
    std::free(last_error);
    last_error = nullptr;
  }
};

ctxb_status fail(ctxb_status status, const char* text) noexcept {
  if (last_error == nullptr) {
    thread_local LastErrorOwner owner;
    static_cast<void>(owner);
  }
  // A text that cannot be kept must not leave an older one in its place.
  std::free(last_error);
  last_error = strdup(text);
  return status;
}

ctxb_status status_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::invalid_argument:
    case ErrorKind::driver_choice:
    case ErrorKind::policy:
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
    case ErrorKind::context_lost:
      return CTXB_ERROR_CONTEXT_LOST;
    case ErrorKind::driver_call:
      return CTXB_ERROR_DRIVER;
    default:
      return CTXB_ERROR;
  }
}

// Runs `body` and turns what it throws into a status and a text.
template <typename Body>
ctxb_status answered(Body&& body) noexcept {
  try {
    body();
    return CTXB_OK;
  } catch (const Error& error) {
    return fail(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(CTXB_ERROR_OUT_OF_HOST_MEMORY, "out of host memory");
  } catch (const std::exception& error) {
    return fail(CTXB_ERROR, error.what());
  }
}

void need(bool holds, const char* what) {
  if (!holds) throw Error(ErrorKind::invalid_argument, what);
}

TenantMetrics metrics_of(const ctxb_tenant& tenant) {
  for (TenantMetrics& one : tenant.broker->metrics().tenants) {
    if (one.id == tenant.tenant.id()) return std::move(one);
  }
  return {};  // closed
}

std::uint32_t code(Severity severity) noexcept {
  switch (severity) {
    case Severity::debug:
      return CTXB_LOG_DEBUG;
    case Severity::info:
      return CTXB_LOG_INFO;
    case Severity::warning:
      return CTXB_LOG_WARNING;
    case Severity::error:
      break;
  }
  return CTXB_LOG_ERROR;
}

std::uint32_t code(LeaseKind kind) noexcept {
  switch (kind) {
    case LeaseKind::shared:
      return CTXB_LEASE_SHARED;
    case LeaseKind::private_own:
      return CTXB_LEASE_PRIVATE;
    case LeaseKind::green:
      return CTXB_LEASE_GREEN;
    case LeaseKind::worker:
      return CTXB_LEASE_WORKER;
    case LeaseKind::automatic:
      break;
  }
  return CTXB_LEASE_AUTO;
}

std::uint32_t code(LeaseState state) noexcept {
  switch (state) {
    case LeaseState::ready:
      return CTXB_STATE_READY;
    case LeaseState::lost:
      return CTXB_STATE_LOST;
    case LeaseState::ended:
      return CTXB_STATE_ENDED;
    case LeaseState::zombie:
      break;
  }
  return CTXB_STATE_ZOMBIE;
}

// Whether the caller's header has the members, which came after the first version.
bool has_policy(const ctxb_broker_options& given) noexcept {
  return given.size >= CTXB_BYTES_THROUGH(ctxb_broker_options, policy_text);
}
bool has_gate(const ctxb_broker_options& given) noexcept {
  return given.size >= CTXB_BYTES_THROUGH(ctxb_broker_options, without_gate);
}
bool has_budget(const ctxb_tenant_options& given) noexcept {
  return given.size >= CTXB_BYTES_THROUGH(ctxb_tenant_options, driver_memory_budget);
}

Policy read_policy_of(const ctxb_broker_options& given) {
  need(given.policy_file == nullptr || given.policy_text == nullptr,
       "both policy_file and policy_text are given; leave one of them null");
  if (given.policy_file != nullptr) return read_policy(given.policy_file);
  if (given.policy_text != nullptr) return parse_policy(given.policy_text, "policy_text");
  return {};
}

BrokerOptions read(const ctxb_broker_options* given) {
  BrokerOptions options;
  if (given == nullptr) return options;
  need(detail::is_sound(given, CTXB_BYTES_THROUGH(ctxb_broker_options, record_data)),
       "the options' size is not sizeof(ctxb_broker_options)");
  if (given->host_name != nullptr) options.host_name = given->host_name;
  if (given->driver != nullptr) {
    options.driver = parse_driver_choice(given->driver);
    if (!options.driver) {
      throw Error(
          ErrorKind::driver_choice,
          "\"" + std::string(given->driver) + "\" is no driver; there are auto, nvidia, software");
    }
  }
  options.ready.green = given->ready_green;
  options.ready.private_own = given->ready_private;
  if (given->ready_bytes != 0) options.ready.memory_budget = given->ready_bytes;
  if (given->record != nullptr) {
    options.records = [record = given->record, data = given->record_data](const Record& one) {
      record(data, code(one.severity), one.tenant.value, one.tenant_name.c_str(), one.topic,
             one.text.c_str());
    };
  }
  if (has_policy(*given)) options.policy = read_policy_of(*given);
  if (has_gate(*given)) options.use_gate = given->without_gate == 0;
  return options;
}

TenantOptions read(const ctxb_tenant_options* given) {
  TenantOptions options;
  if (given == nullptr) return options;
  need(detail::is_sound(given, CTXB_BYTES_THROUGH(ctxb_tenant_options, unload_at_close)),
       "the options' size is not sizeof(ctxb_tenant_options)");
  switch (given->lease) {
    case CTXB_LEASE_AUTO:
      break;
    case CTXB_LEASE_SHARED:
      options.lease = LeaseChoice(LeaseKind::shared);
      break;
    case CTXB_LEASE_PRIVATE:
      options.lease = LeaseChoice(LeaseKind::private_own);
      break;
    case CTXB_LEASE_GREEN:
      options.lease = {LeaseKind::green, given->multiprocessors};
      break;
    default:
      throw Error(ErrorKind::invalid_argument,
                  "lease " + std::to_string(given->lease) +
                      " is none that can be asked for; there are CTXB_LEASE_AUTO, _SHARED, "
                      "_PRIVATE and _GREEN");
  }
  options.per_thread_streams = given->per_thread_streams != 0;
  options.unload_at_close = given->unload_at_close != 0;
  if (has_budget(*given)) options.driver_memory_budget = given->driver_memory_budget;
  return options;
}

}  // namespace
}  // namespace ctxbroker

using ctxbroker::answered;
using ctxbroker::need;

ctxb_status ctxb_broker_open(const ctxb_broker_options* options, ctxb_broker** broker) {
  if (broker != nullptr) *broker = nullptr;
  return answered([&] {
    need(broker != nullptr, "broker is null");
    ctxbroker::Broker opened = ctxbroker::Broker::open(ctxbroker::read(options));
    auto made = std::make_unique<ctxb_broker>(ctxb_broker{std::move(opened), {}, {}});
    made->gate = made->broker.gate();
    for (const std::string& tool : made->gate.tools) made->tools.push_back(tool.c_str());
    made->tools.push_back(nullptr);
    *broker = made.release();
  });
}

ctxb_status ctxb_broker_close(ctxb_broker* broker) {
  return answered([&] {
    need(broker != nullptr, "broker is null");
    broker->broker.close();
    delete broker;
  });
}

uint32_t ctxb_broker_device_count(const ctxb_broker* broker) {
  return broker == nullptr ? 0 : static_cast<uint32_t>(broker->broker.devices().size());
}

ctxb_status ctxb_broker_gate(const ctxb_broker* broker, ctxb_gate_info* info) {
  return answered([&] {
    need(broker != nullptr, "broker is null");
    need(ctxbroker::detail::is_sound(info, CTXB_BYTES_THROUGH(ctxb_gate_info, reason)),
         "info is null, or its size is not sizeof(ctxb_gate_info)");
    info->in_force = broker->gate.in_force ? 1 : 0;
    info->reason = broker->gate.reason.c_str();
    if (info->size < CTXB_BYTES_THROUGH(ctxb_gate_info, reserved)) return;  // of an older host
    info->mode = static_cast<std::uint32_t>(broker->gate.mode);
    info->reserved = 0;
    if (info->size < CTXB_BYTES_THROUGH(ctxb_gate_info, tools)) return;
    info->tools = broker->tools.data();
  });
}

ctxb_status ctxb_broker_begin_realtime(ctxb_broker* broker) {
  return answered([&] {
    need(broker != nullptr, "broker is null");
    broker->broker.begin_realtime();
  });
}

ctxb_status ctxb_broker_end_realtime(ctxb_broker* broker) {
  return answered([&] {
    need(broker != nullptr, "broker is null");
    broker->broker.end_realtime();
  });
}

ctxb_status ctxb_tenant_open(ctxb_broker* broker, const char* name,
                             const ctxb_tenant_options* options, ctxb_tenant** tenant) {
  if (tenant != nullptr) *tenant = nullptr;
  return answered([&] {
    need(broker != nullptr && name != nullptr && tenant != nullptr,
         "broker, name or tenant is null");
    *tenant = new ctxb_tenant{
        broker->broker.open_tenant(name, ctxbroker::read(options)), &broker->broker, {}};
  });
}

ctxb_status ctxb_tenant_close(ctxb_tenant* tenant) {
  return answered([&] {
    need(tenant != nullptr, "tenant is null");
    tenant->tenant.close();
    delete tenant;
  });
}

ctxb_status ctxb_tenant_lease(ctxb_tenant* tenant, int32_t device, ctxb_lease_info* info) {
  return answered([&] {
    need(tenant != nullptr, "tenant is null");
    need(ctxbroker::detail::is_sound(info, CTXB_BYTES_THROUGH(ctxb_lease_info, context)),
         "info is null, or its size is not sizeof(ctxb_lease_info)");
    const ctxbroker::LeaseInfo lease = tenant->tenant.lease(device);
    info->device = lease.device;
    info->kind = ctxbroker::code(lease.granted.kind);
    info->multiprocessors = lease.granted.multiprocessors;
    info->state = ctxbroker::code(lease.state);
    info->reserved = 0;
    info->generation = lease.generation;
    info->context = lease.context;
    // Not there for a caller that was built before it was.
    if (info->size >= CTXB_BYTES_THROUGH(ctxb_lease_info, tenant)) {
      info->tenant = tenant->tenant.name().c_str();
    }
  });
}

uint32_t ctxb_tenant_report_status(ctxb_tenant* tenant, int32_t device, int32_t driver_status) {
  return tenant == nullptr ? CTXB_STATE_LOST
                           : ctxbroker::code(tenant->tenant.report_status(driver_status, device));
}

uint64_t ctxb_tenant_strikes(const ctxb_tenant* tenant) {
  return tenant == nullptr ? 0 : tenant->tenant.strikes();
}

uint64_t ctxb_tenant_guarded_calls(const ctxb_tenant* tenant, const char* function) {
  uint64_t calls = 0;
  answered([&] {
    need(tenant != nullptr, "tenant is null");
    for (const auto& [name, count] : ctxbroker::metrics_of(*tenant).guarded_calls) {
      if (function == nullptr || name == function) calls += count;
    }
  });
  return calls;
}

ctxb_status ctxb_tenant_held(const ctxb_tenant* tenant, const char* kind, uint64_t* things,
                             uint64_t* bytes) {
  return answered([&] {
    need(tenant != nullptr, "tenant is null");
    ctxbroker::HeldThings all;
    for (const auto& [name, held] : ctxbroker::metrics_of(*tenant).held) {
      if (kind != nullptr && name != kind) continue;
      all.count += held.count;
      all.bytes += held.bytes;
    }
    if (things != nullptr) *things = all.count;
    if (bytes != nullptr) *bytes = all.bytes;
  });
}

ctxb_status ctxb_tenant_waits(const ctxb_tenant* tenant, ctxb_wait_totals* waits) {
  return answered([&] {
    need(tenant != nullptr, "tenant is null");
    need(ctxbroker::detail::is_sound(waits, CTXB_BYTES_THROUGH(ctxb_wait_totals, longest_seconds)),
         "waits is null, or its size is not sizeof(ctxb_wait_totals)");
    const ctxbroker::DriverWaits all = ctxbroker::metrics_of(*tenant).waits;
    waits->reserved = 0;
    waits->count = all.count;
    waits->seconds = all.seconds;
    waits->longest_seconds = all.longest_seconds;
  });
}

ctxb_status ctxb_tenant_force_loss(ctxb_tenant* tenant, int32_t device, const char* reason) {
  return answered([&] {
    need(tenant != nullptr && reason != nullptr, "tenant or reason is null");
    need(tenant->broker->force_loss(tenant->tenant.id(), device, reason),
         "the tenant has no lease on that device");
  });
}

ctxb_status ctxb_tenant_adopt(ctxb_tenant* tenant, const char* path, ctxb_library** library) {
  if (library != nullptr) *library = nullptr;
  return answered([&] {
    need(tenant != nullptr && path != nullptr && library != nullptr,
         "tenant, path or library is null");
    tenant->libraries.reserve(tenant->libraries.size() + 1);
    tenant->libraries.push_back(
        std::make_unique<ctxb_library>(ctxb_library{tenant->tenant.adopt(path)}));
    *library = tenant->libraries.back().get();
  });
}

void* ctxb_library_symbol(const ctxb_library* library, const char* name) {
  void* symbol = nullptr;
  if (library != nullptr) answered([&] { symbol = library->library.symbol(name); });
  return symbol;
}

ctxb_status ctxb_tenant_allocate(ctxb_tenant* tenant, int32_t device, uint64_t bytes,
                                 uint64_t* address) {
  if (address != nullptr) *address = 0;
  return answered([&] {
    need(tenant != nullptr && address != nullptr, "tenant or address is null");
    *address = tenant->tenant.allocate(bytes, device);
  });
}

ctxb_status ctxb_tenant_release(ctxb_tenant* tenant, uint64_t address) {
  return answered([&] {
    need(tenant != nullptr, "tenant is null");
    tenant->tenant.release(address);
  });
}

ctxb_status ctxb_tenant_create_stream(ctxb_tenant* tenant, int32_t device, void** stream) {
  if (stream != nullptr) *stream = nullptr;
  return answered([&] {
    need(tenant != nullptr && stream != nullptr, "tenant or stream is null");
    *stream = tenant->tenant.create_stream(device);
  });
}

ctxb_status ctxb_tenant_destroy_stream(ctxb_tenant* tenant, void* stream) {
  return answered([&] {
    need(tenant != nullptr, "tenant is null");
    tenant->tenant.destroy_stream(static_cast<CUstream>(stream));
  });
}

ctxb_status ctxb_tenant_enter(ctxb_tenant* tenant, int32_t device, const char* doing,
                              ctxb_guard* guard) {
  return answered([&] {
    need(tenant != nullptr && guard != nullptr, "tenant or guard is null");
    new (guard) ctxbroker::Guard(tenant->tenant, device, doing == nullptr ? "guard" : doing);
  });
}

void ctxb_guard_leave(ctxb_guard* guard) {
  if (guard != nullptr) std::launder(reinterpret_cast<ctxbroker::Guard*>(guard))->~Guard();
}

const char* ctxb_last_error(void) {
  return ctxbroker::last_error != nullptr ? ctxbroker::last_error : "";
}
