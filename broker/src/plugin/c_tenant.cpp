// SPDX-License-Identifier: Apache-2.0
// host.h: the functions of a tenant, its leases and its guards.
#include <algorithm>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "context/realtime_calls.hpp"
#include "ctxbroker/device_memory.hpp"
#include "ctxbroker/guard.hpp"
#include "gate/rule.hpp"
#include "ledger/holding.hpp"
#include "plugin/access.hpp"
#include "plugin/c_host.hpp"
#include "plugin/tenant_impl.hpp"

namespace {

using ctxbroker::DeviceMemory;
using ctxbroker::Guard;
using ctxbroker::TenantMetrics;
using ctxbroker::detail::answered;
using ctxbroker::detail::check_argument;
using ctxbroker::detail::code;
using ctxbroker::detail::give;
using ctxbroker::detail::give_lease;

static_assert(sizeof(Guard) <= sizeof(ctxb_guard) && alignof(Guard) <= alignof(ctxb_guard));

// Lets ctxb_guard_leave do nothing. A C host has no destructor that runs once, so it may leave a
// guard again, by which time the frame may be another guard's.
void mark_left(ctxb_guard& guard) noexcept {
  auto* const storage = new (&guard) ctxbroker::detail::GuardStorage;
  storage->entered = false;
}

// Throws unless `kind` is a kind of thing that ctxb_tenant_held counts.
void check_kind(const std::string& kind) {
  using ctxbroker::detail::Kind;
  constexpr const char* retained = "primary context";
  std::string known = retained;
  if (kind == retained) return;
  for (std::size_t index = 0; index < ctxbroker::detail::kind_count; ++index) {
    const char* const one = to_string(static_cast<Kind>(index));
    if (kind == one) return;
    known += std::string(", ") + one;
  }
  throw ctxbroker::Error(ctxbroker::ErrorKind::invalid_argument,
                         "\"" + kind + "\" is no kind of thing; there are " + known);
}

void check_guarded(const std::string& function) {
  for (std::size_t index = 0; index < ctxbroker::detail::rule_count(); ++index) {
    const auto& row = ctxbroker::detail::rule_at(index);
    if (row.rule != nullptr && function == row.symbol) return;
  }
  throw ctxbroker::Error(ctxbroker::ErrorKind::invalid_argument,
                         "\"" + function + "\" is no guarded function of the driver");
}

// Throws unless `call` is one of those that hold up neighbours.
void check_realtime_call(std::string_view call) {
  std::string known;
  for (const auto& one : ctxbroker::detail::realtime_calls) {
    if (call == one.name) return;
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  throw ctxbroker::Error(
      ctxbroker::ErrorKind::invalid_argument,
      "\"" + std::string(call) + "\" is no call that holds up neighbours; there are " + known);
}

TenantMetrics metrics_of(const ctxb_tenant& tenant) {
  for (TenantMetrics& one : tenant.broker->metrics().tenants) {
    if (one.id == tenant.tenant.id()) return std::move(one);
  }
  return {};  // closed
}

}  // namespace

ctxb_status ctxb_tenant_open(ctxb_broker* broker, const char* name,
                             const ctxb_tenant_options* options, ctxb_tenant** tenant) {
  if (tenant != nullptr) *tenant = nullptr;
  return answered(broker != nullptr && name != nullptr && tenant != nullptr,
                  "broker, name or tenant is null", [&] {
                    *tenant = new ctxb_tenant{
                        broker->broker.open_tenant(name, ctxbroker::detail::read(options)),
                        &broker->broker,
                        {},
                        {}};
                  });
}

ctxb_status ctxb_tenant_close(ctxb_tenant* tenant) {
  return answered(tenant != nullptr, "tenant is null", [&] {
    if (tenant->uses != 0) {
      throw ctxbroker::Error(
          ctxbroker::ErrorKind::wrong_state,
          "a graph has memory of tenant " + tenant->tenant.name() + "; destroy the graph first");
    }
    tenant->tenant.close();
    delete tenant;
  });
}

uint32_t ctxb_tenant_id(const ctxb_tenant* tenant) {
  return tenant == nullptr ? 0 : tenant->tenant.id().value;
}

const char* ctxb_tenant_name(const ctxb_tenant* tenant) {
  return tenant == nullptr ? "" : tenant->tenant.name().c_str();
}

ctxb_status ctxb_tenant_lease(ctxb_tenant* tenant, int32_t device, ctxb_lease_info* info) {
  return answered(tenant != nullptr, "tenant is null", [&] {
    give_lease(info, tenant->tenant.lease(device), tenant->tenant.name().c_str(), tenant->reasons);
  });
}

uint32_t ctxb_tenant_report_status(ctxb_tenant* tenant, int32_t device, int32_t driver_status) {
  return tenant == nullptr ? CTXB_STATE_LOST
                           : code(tenant->tenant.report_status(device, driver_status));
}

uint64_t ctxb_tenant_strikes(const ctxb_tenant* tenant) {
  return tenant == nullptr ? 0 : tenant->tenant.strikes();
}

uint64_t ctxb_tenant_guarded_calls(const ctxb_tenant* tenant, const char* function) {
  uint64_t calls = 0;
  answered(tenant != nullptr, "tenant is null", [&] {
    if (function != nullptr) check_guarded(function);
    for (const auto& [name, count] : metrics_of(*tenant).guarded_calls) {
      if (function == nullptr || name == function) calls += count;
    }
  });
  return calls;
}

ctxb_status ctxb_tenant_held(const ctxb_tenant* tenant, const char* kind, uint64_t* things,
                             uint64_t* bytes) {
  if (things != nullptr) *things = 0;
  if (bytes != nullptr) *bytes = 0;
  return answered(tenant != nullptr, "tenant is null", [&] {
    check_argument(things != nullptr || bytes != nullptr, "things and bytes are both null");
    if (kind != nullptr) check_kind(kind);
    ctxbroker::HeldThings all;
    for (const auto& [name, held] : metrics_of(*tenant).held) {
      if (kind != nullptr && name != kind) continue;
      all.count += held.count;
      all.bytes += held.bytes;
    }
    if (things != nullptr) *things = all.count;
    if (bytes != nullptr) *bytes = all.bytes;
  });
}

ctxb_status ctxb_tenant_waits(const ctxb_tenant* tenant, ctxb_wait_totals* waits) {
  return answered(tenant != nullptr, "tenant is null", [&] {
    const ctxbroker::DriverWaits all = metrics_of(*tenant).waits;
    give(waits, {0, 0, all.count, all.seconds, all.longest_seconds},
         "waits is null, or its size is not sizeof(ctxb_wait_totals)");
  });
}

ctxb_status ctxb_tenant_realtime(const ctxb_tenant* tenant, const char* call,
                                 ctxb_realtime_totals* totals) {
  return answered(tenant != nullptr, "tenant is null", [&] {
    if (call != nullptr) check_realtime_call(call);
    ctxbroker::RealtimeTotals all;
    for (const auto& [name, one] : metrics_of(*tenant).realtime) {
      if (call != nullptr && name != call) continue;
      all.count += one.count;
      all.refused += one.refused;
      all.seconds += one.seconds;
      all.longest_seconds = std::max(all.longest_seconds, one.longest_seconds);
    }
    give(totals, {0, 0, all.count, all.refused, all.seconds, all.longest_seconds},
         "totals is null, or its size is not sizeof(ctxb_realtime_totals)");
  });
}

ctxb_status ctxb_tenant_force_loss(ctxb_tenant* tenant, int32_t device, const char* reason) {
  return answered(tenant != nullptr && reason != nullptr, "tenant or reason is null", [&] {
    check_argument(tenant->broker->force_loss(tenant->tenant.id(), device, reason),
                   "the tenant has no lease on that device");
  });
}

ctxb_status ctxb_tenant_enable_peer_access(ctxb_tenant* tenant, int32_t device, int32_t peer) {
  return answered(tenant != nullptr, "tenant is null",
                  [&] { tenant->tenant.enable_peer_access(device, peer); });
}

ctxb_status ctxb_tenant_adopt(ctxb_tenant* tenant, const char* path, ctxb_library** library) {
  return ctxb_tenant_adopt_with(tenant, path, 0, library);
}

ctxb_status ctxb_tenant_adopt_with(ctxb_tenant* tenant, const char* path, uint32_t flags,
                                   ctxb_library** library) {
  if (library != nullptr) *library = nullptr;
  return answered(
      tenant != nullptr && path != nullptr && library != nullptr, "tenant, path or library is null",
      [&] {
        check_argument((flags & ~std::uint32_t{CTXB_ADOPT_LAZY | CTXB_ADOPT_GLOBAL}) == 0,
                       "the flags are not CTXB_ADOPT_*");
        const ctxbroker::AdoptOptions options{(flags & CTXB_ADOPT_LAZY) != 0,
                                              (flags & CTXB_ADOPT_GLOBAL) != 0};
        tenant->libraries.reserve(tenant->libraries.size() + 1);
        tenant->libraries.push_back(
            std::make_unique<ctxb_library>(ctxb_library{tenant->tenant.adopt(path, options)}));
        *library = tenant->libraries.back().get();
      });
}

void* ctxb_library_symbol(const ctxb_library* library, const char* name) {
  void* symbol = nullptr;
  answered(library != nullptr && name != nullptr, "library or name is null",
           [&] { symbol = library->library.symbol(name); });
  return symbol;
}

ctxb_status ctxb_tenant_allocate(ctxb_tenant* tenant, int32_t device, uint64_t bytes,
                                 uint64_t* address) {
  if (address != nullptr) *address = 0;
  return answered(tenant != nullptr && address != nullptr, "tenant or address is null",
                  [&] { *address = tenant->tenant.allocate(bytes, device); });
}

ctxb_status ctxb_tenant_allocate_shareable(ctxb_tenant* tenant, int32_t device, uint64_t* bytes,
                                           uint64_t* address) {
  if (address != nullptr) *address = 0;
  return answered(tenant != nullptr && bytes != nullptr && address != nullptr,
                  "tenant, bytes or address is null", [&] {
                    DeviceMemory memory = DeviceMemory::shareable(tenant->tenant, *bytes, device);
                    *bytes = memory.bytes();
                    *address = memory.detach();
                  });
}

ctxb_status ctxb_tenant_export_memory(ctxb_tenant* tenant, uint64_t address, int32_t* descriptor) {
  if (descriptor != nullptr) *descriptor = -1;
  return answered(tenant != nullptr && descriptor != nullptr, "tenant or descriptor is null", [&] {
    *descriptor = ctxbroker::detail::Access::of(tenant->tenant)->export_memory(address).descriptor;
  });
}

ctxb_status ctxb_tenant_import_memory(ctxb_tenant* tenant, int32_t device, int32_t descriptor,
                                      uint64_t bytes, uint64_t* address) {
  if (address != nullptr) *address = 0;
  return answered(tenant != nullptr && address != nullptr, "tenant or address is null", [&] {
    *address = DeviceMemory::imported(tenant->tenant, descriptor, bytes, device).detach();
  });
}

ctxb_status ctxb_tenant_release(ctxb_tenant* tenant, uint64_t address) {
  return answered(tenant != nullptr, "tenant is null", [&] { tenant->tenant.release(address); });
}

uint64_t ctxb_tenant_memory_bytes(const ctxb_tenant* tenant) {
  return tenant == nullptr ? 0 : tenant->tenant.memory_bytes();
}

ctxb_status ctxb_tenant_create_stream(ctxb_tenant* tenant, int32_t device, void** stream) {
  if (stream != nullptr) *stream = nullptr;
  return answered(tenant != nullptr && stream != nullptr, "tenant or stream is null",
                  [&] { *stream = tenant->tenant.create_stream(device); });
}

ctxb_status ctxb_tenant_destroy_stream(ctxb_tenant* tenant, void* stream) {
  return answered(tenant != nullptr, "tenant is null",
                  [&] { tenant->tenant.destroy_stream(static_cast<CUstream>(stream)); });
}

ctxb_status ctxb_tenant_enter(ctxb_tenant* tenant, int32_t device, const char* doing,
                              ctxb_guard* guard) {
  if (guard != nullptr) mark_left(*guard);
  return answered(tenant != nullptr && guard != nullptr, "tenant or guard is null", [&] {
    new (guard) Guard(tenant->tenant, device, doing == nullptr ? "guard" : doing);
  });
}

void ctxb_guard_leave(ctxb_guard* guard) {
  if (guard == nullptr) return;
  std::launder(reinterpret_cast<Guard*>(guard))->~Guard();
  mark_left(*guard);
}
