// SPDX-License-Identifier: Apache-2.0
#include "gate/held.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "context/guard.hpp"
#include "gate/exports.hpp"
#include "gate/give_back.hpp"

namespace ctxbroker::detail {
namespace {

using Current = DriverFunction<"cuCtxGetCurrent", CUresult(CUcontext*)>;

// So the driver answers for a handle that it does not know.
CUresult refusal_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::context:
    case Kind::green_context:
      return CUDA_ERROR_INVALID_CONTEXT;
    case Kind::graph_memory:
    case Kind::memory:
    case Kind::host_memory:
    case Kind::ipc_memory:
    case Kind::mapping:
    case Kind::reservation:
    case Kind::physical:
    case Kind::pool:
    case Kind::own_pool:
    case Kind::texture:
    case Kind::surface:
    case Kind::user_object:
    case Kind::graph:
    case Kind::graph_exec:
      return CUDA_ERROR_INVALID_VALUE;
    case Kind::registration:
      return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    default:
      return CUDA_ERROR_INVALID_HANDLE;
  }
}

// Returns whether the tenant has memory of another kind there, which another function ends.
bool holds_otherwise(const GatedTenant& tenant, Kind kind, std::uint64_t address) noexcept {
  constexpr Kind by_address[] = {Kind::graph_memory, Kind::memory, Kind::host_memory,
                                 Kind::registration, Kind::ipc_memory};
  if (std::find(std::begin(by_address), std::end(by_address), kind) == std::end(by_address)) {
    return false;
  }
  return std::any_of(std::begin(by_address), std::end(by_address),
                     [&](Kind other) { return ledger().holds(tenant.holder(), other, address); });
}

}  // namespace

Holding made_here(GatedTenant& tenant, Holding holding) noexcept {
  holding.holder = tenant.holder();
  // In a guard that nothing has touched, the driver need not be asked.
  const Frame* const frame = pushed_frame();
  const bool is_known = frame != nullptr && is_untouched(*frame);
  CUcontext const current = is_known ? frame->target.context : current_context();
  holding.generation = tenant.generation_of(current);
  // A thing that was made in a context of the tenant's own, and not in a lease, ends with that
  // context.
  if (holding.generation == 0 && holding.kind != Kind::context &&
      home_of(holding) != Home::device) {
    holding.context = handle_value(current);
  }
  return holding;
}

CUcontext current_context() noexcept {
  CUcontext current = nullptr;
  return Current::call(&current) == CUDA_SUCCESS ? current : nullptr;
}

bool alone_in_context(const Caller& caller) noexcept {
  const CUcontext current = current_context();
  if (current == nullptr) return true;
  if (ledger().holds(caller.tenant->holder(), Kind::context, handle_value(current))) return true;
  const int device = caller.tenant->find_device(current);
  TranslatedLease lease;
  return device >= 0 && caller.tenant->has_lease(device) &&
         caller.tenant->lease(device, &lease) == CUDA_SUCCESS &&
         lease.kind == LeaseKind::private_own;
}

bool record_holding(GatedTenant& tenant, Holding holding) noexcept {
  try {
    ledger().add(made_here(tenant, std::move(holding)));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void hold_once_more(GatedTenant& tenant, Holding holding) noexcept {
  try {
    ledger().add_reference(made_here(tenant, std::move(holding)));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): as what cannot be entered
  }
}

bool relieve_device(GatedTenant& tenant) noexcept {
  return tenant.relieve(current_context());
}

void log_used_up(GatedTenant& tenant, Limit limit, std::uint64_t more) noexcept {
  const LimitRow& row = limit_rows()[static_cast<std::size_t>(limit)];
  const Budget& budget = tenant.limits().of(limit);
  char text[300];
  std::snprintf(text, sizeof text,
                "the tenant's code may hold %llu %s through the driver and holds %llu; %llu more "
                "were refused. A policy file sets this limit by its name, and the host does in "
                "TenantOptions",
                static_cast<unsigned long long>(budget.limit()), row.what,
                static_cast<unsigned long long>(budget.held()),
                static_cast<unsigned long long>(more));
  tenant.log_once(row.name, text, Severity::warning, "limit");
}

bool take_share(GatedTenant& tenant, Holding& holding) noexcept {
  auto refused = tenant.limits().take(holding);
  if (refused && (holding.bytes != 0 || holding.host_bytes != 0)) {
    Exports::all().forget_closed();
    refused = tenant.limits().take(holding);
  }
  if (refused && holding.store != nullptr) {  // freed memory counts until its work has ended
    holding.store->wait_for_frees(holding.store->latest());
    refused = tenant.limits().take(holding);
  }
  if (refused) log_used_up(tenant, *refused, Limits::need_of(holding, *refused));
  return !refused;
}

void hold_again(const Holding& holding) noexcept {
  try {
    ledger().add(holding);
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the context's end frees it
  }
}

bool ended_with_context(GatedTenant& tenant, const Holding& holding) noexcept {
  if (holding.ended) return true;
  if (holding.generation == 0) return false;
  if (const Frame* frame = pushed_frame();
      frame != nullptr && frame->target.generation == holding.generation) {
    return false;  // the thread is in it
  }
  return !tenant.end_target(holding.generation, home_of(holding));
}

bool ends_in_its_time(const Holding& held) noexcept {
  switch (held.kind) {
    case Kind::context:
    case Kind::green_context:
    case Kind::graph:
    case Kind::graph_exec:
    case Kind::pool:
      return false;  // their rules do more
    default:
      return held.generation != 0 && (waits_for_work(held.kind) || HungWork::anywhere());
  }
}

CUresult end_in_time(GatedTenant& tenant, const Holding& held,
                     std::function<void(CUresult)> settle) noexcept {
  std::optional<TimedWait> wait;
  if (held.kind == Kind::memory) wait.emplace(tenant, "cuMemFree");
  if (held.kind == Kind::host_memory) wait.emplace(tenant, "cuMemFreeHost");
  const auto status = end_holding(tenant, held, std::move(settle));
  if (!status) return CUDA_SUCCESS;
  return *status == Lease::gone ? CUDA_ERROR_CONTEXT_IS_DESTROYED : *status;
}

GatedTenant* other_holder(const GatedTenant& tenant, Kind kind, std::uint64_t handle) noexcept {
  const auto held = ledger().find(kind, handle);
  if (!held || held->holder.origin != Origin::code) return nullptr;
  GatedTenant* const other = gated_tenant_of(held->holder.tenant);
  return other != nullptr && other != &tenant && other->stands_with(tenant) ? other : nullptr;
}

std::optional<CUresult> refuse_nobody(const Caller& caller, const char* function, Kind kind,
                                      std::uint64_t handle) noexcept {
  if (!any_gated_tenant()) return std::nullopt;
  const auto held = ledger().find(kind, handle);
  GatedTenant* const holder = held ? gated_tenant_of(held->holder.tenant) : nullptr;
  return holder != nullptr ? refuse_nobody(caller, function, kind, handle, *holder) : std::nullopt;
}

std::optional<CUresult> refuse_nobody(const Caller& caller, const char* function, Kind kind,
                                      std::uint64_t handle, GatedTenant& holder) noexcept {
  try {
    if (!is_nobodys(caller, holder)) return std::nullopt;
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): not known, and so refused
  }
  char text[200];
  std::snprintf(text, sizeof text,
                "%s 0x%llx is this tenant's, and the call came from nobody's code, such as the C "
                "library; it was left alone",
                to_string(kind), static_cast<unsigned long long>(handle));
  holder.log(Severity::warning, function, text);
  return refusal_of(kind);
}

std::optional<CUresult> refuse_nobody_on(const Caller& caller, const char* function,
                                         CUdevice device) noexcept {
  if (!any_gated_tenant()) return std::nullopt;
  GatedTenant* const tenant = tenant_on(device);
  if (tenant == nullptr) return std::nullopt;
  try {
    if (!is_nobodys(caller)) return std::nullopt;
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): not known, and so refused
  }
  tenant->log(Severity::warning, function,
              "it reaches what this tenant works in, and the call came from nobody's code, such "
              "as the C library; it was left alone");
  return CUDA_ERROR_INVALID_CONTEXT;
}

std::optional<CUresult> refuse_nobody_here(const Caller& caller, const char* function) noexcept {
  CUdevice device = -1;
  if (!any_gated_tenant() || CurrentDevice::call(&device) != CUDA_SUCCESS) return std::nullopt;
  return refuse_nobody_on(caller, function, device);
}

void tell_of_registration(const void* address, std::uint64_t bytes, bool fresh,
                          const GatedTenant* caller) noexcept {
  const auto held = ledger().find_registration(handle_value(address), bytes);
  GatedTenant* const holder = held ? gated_tenant_of(held->holder.tenant) : nullptr;
  if (holder == nullptr || (caller != nullptr && holder->stands_with(*caller))) return;
  char text[320];
  std::snprintf(text, sizeof text,
                "this tenant's registration of %llu bytes at 0x%llx covers memory at 0x%llx, which "
                "%s %s; memory must be unregistered (cuMemHostUnregister) before it is freed",
                static_cast<unsigned long long>(held->host_bytes),
                static_cast<unsigned long long>(held->handle),
                static_cast<unsigned long long>(handle_value(address)),
                caller != nullptr ? caller->identity().name.c_str() : "the broker",
                fresh
                    ? "has just got from the system and cannot register: the tenant has freed its "
                      "own"
                    : "wanted to register. The tenant may have freed its own");
  try {
    const std::string key = "registration at " + std::to_string(held->handle);
    if (!holder->is_open() || holder->identity().repeats.count(key, {}) != 1) return;
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): told once more than needed
  }
  if (fresh) {
    holder->strike("cuMemHostRegister", text);
  } else {
    holder->log(Severity::warning, "cuMemHostRegister", text);
  }
}

CUresult refuse_end(GatedTenant& tenant, const char* function, Kind kind,
                    std::uint64_t handle) noexcept {
  if (holds_otherwise(tenant, kind, handle)) {
    tenant.log_once(function,
                    "refused: the memory is the tenant's own, but of a kind that another function "
                    "ends; it was left alone");
    return refusal_of(kind);
  }
  char text[300];
  char neighbour[120] = "a neighbour's";
  const auto held =
      kind == Kind::memory ? ledger().find_memory_at(handle) : ledger().find(kind, handle);
  if (!held && tenant.main().was_here()) {
    tenant.log_once(function,
                    "refused: the tenant's library may have made it before it was the tenant's, "
                    "and such things stay the host's; it was left alone");
    return refusal_of(kind);
  }
  const char* whose = held ? neighbour : "not the tenant's own";
  if (GatedTenant* const holder = held ? gated_tenant_of(held->holder.tenant) : nullptr) {
    std::snprintf(neighbour, sizeof neighbour, "a neighbour's, %s",
                  holder->identity().name.c_str());
  }
  if (held && held->holder.tenant == tenant.identity().id) {
    if (held->holder.origin == Origin::sdk) {
      whose = kind == Kind::stream ? "not the tenant's own"  // but lent to an instance
                                   : "an instance's, which releases it with the SDK's release";
    } else if (held->holder.origin == Origin::host_api) {
      whose = "the host's, which gives it back through its Tenant";
    }
  }
  std::snprintf(text, sizeof text, "%s 0x%llx is %s; it was left alone", to_string(kind),
                static_cast<unsigned long long>(handle), whose);
  tenant.strike(function, text);
  return refusal_of(kind);
}

}  // namespace ctxbroker::detail
