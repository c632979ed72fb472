// SPDX-License-Identifier: Apache-2.0
// Functions of a tenant's code that the driver calls: host functions, also those of graphs, stream
// callbacks, and destructors of user objects. The driver calls functions of all tenants on the same
// thread, so nothing that one of them does to the thread passes this.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "ctxbroker/tenant_id.hpp"
#include "gate/gated_tenant.hpp"

namespace ctxbroker::detail {

// Calls run(data), a function of the tenant's code. An exception ends here, and so do pthread_exit
// and a cancellation of the thread, which would end the thread for all tenants. Each is a strike,
// and the work in `stream` counts as failed; null: it is not known which stream that is. Restores
// the thread's floating-point control. `name` is the driver's function that took the function.
void run_callback(GatedTenant& tenant, const char* name, CUstream stream, void (*run)(void*),
                  void* data) noexcept;
template <typename Call>
void run_callback(GatedTenant& tenant, const char* name, CUstream stream, Call&& call) noexcept {
  using Called = std::remove_reference_t<Call>;
  run_callback(
      tenant, name, stream, [](void* given) { (*static_cast<Called*>(given))(); }, &call);
}

// A function that a graph calls, any number of times, until nobody knows when. The driver gets
// another one in its place, which calls it through run_callback and stays for good: there is one
// for each function with its data. OUT_OF_MEMORY: there is no memory for that.
CUresult lead_graph_function(GatedTenant& tenant, CUhostFn& function, void*& data) noexcept;
// The other way round, for calls that return what a graph's node calls.
void find_graph_function(CUhostFn& function, void*& data) noexcept;

}  // namespace ctxbroker::detail
