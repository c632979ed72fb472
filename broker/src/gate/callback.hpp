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

// A node of an executable graph; zeros: of a graph.
struct ExecNode {
  std::uint64_t exec = 0, node = 0;
};

// A function that a graph calls, any number of times, until nobody knows when. The driver gets
// another one in its place, which calls it through run_callback. It stays for good, unless the
// driver refuses it. Those of a node of an executable graph stay until the driver has called a
// later one: the launches of an executable graph come one after the other.
class LedGraphFunction {
 public:
  // The tenant's function counts as pending from here on.
  LedGraphFunction(GatedTenant& tenant, CUhostFn function, void* data, ExecNode place) noexcept;
  // Forgets the function, unless it was settled with a status with which the driver has it.
  ~LedGraphFunction();
  LedGraphFunction(const LedGraphFunction&) = delete;
  LedGraphFunction& operator=(const LedGraphFunction&) = delete;

  // OUT_OF_MEMORY: there is no memory for another function.
  CUresult status() const noexcept { return status_; }
  CUhostFn function() const noexcept { return function_; }
  void* data() const noexcept { return data_; }
  // Takes the status of the driver's call, and returns it.
  CUresult settle(CUresult status) noexcept;

 private:
  struct Pending;
  GatedTenant& tenant_;
  CUhostFn function_;
  void* data_;
  CUresult status_ = CUDA_SUCCESS;
  bool is_taken_ = false;
  Pending* pending_ = nullptr;  // null: nothing is to be forgotten
};
// `pass` gives the driver a function and its data.
template <typename Pass>
CUresult pass_graph_function(GatedTenant& tenant, CUhostFn function, void* data, ExecNode place,
                             Pass&& pass) noexcept {
  LedGraphFunction led(tenant, function, data, place);
  return led.status() == CUDA_SUCCESS ? led.settle(pass(led.function(), led.data())) : led.status();
}
// That executable graph is about to be destroyed, and its handle may be another's as soon as it is.
// Its last launch may still call. Returns the number that put_back_exec_functions takes.
std::uint64_t take_exec_functions(std::uint64_t exec) noexcept;
// The driver has refused: the functions are those of its nodes as before.
void put_back_exec_functions(std::uint64_t taken, std::uint64_t exec) noexcept;
// The other way round, for calls that return what a graph's node calls.
void find_graph_function(CUhostFn& function, void*& data) noexcept;

}  // namespace ctxbroker::detail
