// SPDX-License-Identifier: Apache-2.0
// Functions of a tenant's code that the driver calls later. Each is counted until it has run, so
// that its library is not unloaded before that, and runs as run_callback says.
#include <memory>
#include <new>

#include "driver/driver_error.hpp"
#include "gate/callback.hpp"
#include "gate/use.hpp"

namespace ctxbroker::detail {
namespace {

using What = PendingCalls::What;

// A tenant's function that the driver calls once, later. The driver gets `call` in its place.
template <typename... Leading>
struct Pending {
  using Function = void (*)(Leading..., void*);
  GatedTenant& tenant;
  const char* name;  // of the driver's function that took it
  What what;
  Function function;
  void* data;
  CUstream stream;  // null: it is in none

  static void CUDA_CB call(Leading... leading, void* given) noexcept {
    const std::unique_ptr<Pending> self(static_cast<Pending*>(given));
    run_callback(self->tenant, self->name, self->stream,
                 [&] { self->function(leading..., self->data); });
    self->tenant.pending_calls().end(self->what);
  }
};

// `pass` gives the driver a function and its data.
template <typename... Leading, typename Pass>
CUresult pass_counted(GatedTenant& tenant, const char* name, What what,
                      typename Pending<Leading...>::Function function, void* data, CUstream stream,
                      Pass&& pass) noexcept {
  if (function == nullptr) return pass(function, data);
  PendingCalls& calls = tenant.pending_calls();
  std::unique_ptr<Pending<Leading...>> pending(
      new (std::nothrow) Pending<Leading...>{tenant, name, what, function, data, stream});
  if (pending == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!calls.begin(what)) {
    tenant.log_once(name, "refused: the function's library is being unloaded");
    return CUDA_ERROR_NOT_PERMITTED;
  }
  const CUresult status = pass(Pending<Leading...>::call, pending.get());
  // After a fault nobody knows whether the driver has it: then it stays counted.
  if (status == CUDA_SUCCESS || is_process_fault(status)) {
    static_cast<void>(pending.release());
  } else {
    calls.end(what);
  }
  return status;
}

// In a capture it becomes a node of a graph, which may call it any number of times.
template <SymbolName name, SymbolName is_capturing, typename... Mode>
struct LaunchesHostFunction {
  using Real = DriverFunction<name, CUresult(CUstream, CUhostFn, void*, Mode...)>;
  using IsCapturing = DriverFunction<is_capturing, CUresult(CUstream, CUstreamCaptureStatus*)>;
  static CUresult call(CUstream stream, CUhostFn function, void* data, Mode... mode) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(stream, function, data, mode...);
    const CUresult refused =
        check_use(*caller.tenant, Real::symbol, Kind::stream, handle_value(stream));
    if (refused != CUDA_SUCCESS) return refused;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    if (IsCapturing::is_bound() && IsCapturing::call(stream, &capture) == CUDA_SUCCESS &&
        capture != CU_STREAM_CAPTURE_STATUS_NONE) {
      return pass_graph_function(*caller.tenant, function, data, {},
                                 [&](CUhostFn passed, void* its_data) {
                                   return Real::call(stream, passed, its_data, mode...);
                                 });
    }
    return pass_counted<>(*caller.tenant, Real::symbol, What::host_function, function, data, stream,
                          [&](CUhostFn passed, void* its_data) {
                            return Real::call(stream, passed, its_data, mode...);
                          });
  }
  static constexpr RuleRow capturing_row() { return unguarded<IsCapturing>(); }
};

// The driver does not take it in a capture.
template <SymbolName name>
struct AddsCallback {
  using Real = DriverFunction<name, CUresult(CUstream, CUstreamCallback, void*, unsigned)>;
  static CUresult call(CUstream stream, CUstreamCallback function, void* data,
                       unsigned flags) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(stream, function, data, flags);
    const CUresult refused =
        check_use(*caller.tenant, Real::symbol, Kind::stream, handle_value(stream));
    if (refused != CUDA_SUCCESS) return refused;
    return pass_counted<CUstream, CUresult>(*caller.tenant, Real::symbol, What::host_function,
                                            function, data, stream,
                                            [&](CUstreamCallback passed, void* its_data) {
                                              return Real::call(stream, passed, its_data, flags);
                                            });
  }
};

using MakeObject = DriverFunction<"cuUserObjectCreate",
                                  CUresult(CUuserObject*, void*, CUhostFn, unsigned, unsigned)>;
CUresult make_object(CUuserObject* out, void* data, CUhostFn destroy, unsigned count,
                     unsigned flags) noexcept {
  const Caller caller = enter_rule<MakeObject>();
  if (caller.tenant == nullptr) return MakeObject::call(out, data, destroy, count, flags);
  return pass_counted<>(
      *caller.tenant, MakeObject::symbol, What::user_object, destroy, data, nullptr,
      [&](CUhostFn passed, void* its_data) {
        // Its holder has that number of references.
        return make_held(*caller.tenant, Holding{.kind = Kind::user_object, .extent = count}, out,
                         [&] { return MakeObject::call(out, its_data, passed, count, flags); });
      });
}

// ---- nodes of graphs ----------------------------------------------------------------------------

using Params = CUDA_HOST_NODE_PARAMS;

// `call` gives the driver the node's parameters, or what stands in their place for a tenant.
template <typename Call>
CUresult with_led(const Caller& caller, const Params* params, ExecNode place,
                  Call&& call) noexcept {
  if (caller.tenant == nullptr || params == nullptr) return call(params);
  return pass_graph_function(*caller.tenant, params->fn, params->userData, place,
                             [&](CUhostFn function, void* data) {
                               const Params led{function, data};
                               return call(&led);
                             });
}

using AddHostNode =
    DriverFunction<"cuGraphAddHostNode",
                   CUresult(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t, const Params*)>;
CUresult add_host_node(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                       std::size_t count, const Params* params) noexcept {
  const Caller caller = enter_rule<AddHostNode>();
  const std::uint64_t whole = handle_value(graph);
  CUresult status = check_use(caller, AddHostNode::symbol, Kind::graph, whole);
  if (status != CUDA_SUCCESS) return status;
  status = with_led(caller, params, {}, [&](const Params* led) {
    return AddHostNode::call(node, graph, after, count, led);
  });
  if (status == CUDA_SUCCESS && caller.tenant != nullptr && node != nullptr) {
    note_member(Kind::graph, whole, handle_value(*node));
  }
  return status;
}

using SetHostNode =
    DriverFunction<"cuGraphHostNodeSetParams", CUresult(CUgraphNode, const Params*)>;
CUresult set_host_node(CUgraphNode node, const Params* params) noexcept {
  const Caller caller = enter_rule<SetHostNode>();
  const CUresult refused = check_use(caller, SetHostNode::symbol, Kind::graph, handle_value(node));
  if (refused != CUDA_SUCCESS) return refused;
  return with_led(caller, params, {},
                  [&](const Params* led) { return SetHostNode::call(node, led); });
}

using SetInExec = DriverFunction<"cuGraphExecHostNodeSetParams",
                                 CUresult(CUgraphExec, CUgraphNode, const Params*)>;
CUresult set_in_exec(CUgraphExec exec, CUgraphNode node, const Params* params) noexcept {
  const Caller caller = enter_rule<SetInExec>();
  const CUresult refused =
      check_use(caller, SetInExec::symbol, Kind::graph_exec, handle_value(exec));
  if (refused != CUDA_SUCCESS) return refused;
  return with_led(caller, params, {handle_value(exec), handle_value(node)},
                  [&](const Params* led) { return SetInExec::call(exec, node, led); });
}

using GetHostNode = DriverFunction<"cuGraphHostNodeGetParams", CUresult(CUgraphNode, Params*)>;
CUresult get_host_node(CUgraphNode node, Params* params) noexcept {
  enter_rule<GetHostNode>();
  const CUresult status = GetHostNode::call(node, params);
  if (status == CUDA_SUCCESS && params != nullptr) {
    find_graph_function(params->fn, params->userData);
  }
  return status;
}

// ---- rows ---------------------------------------------------------------------------------------

using Launch = LaunchesHostFunction<"cuLaunchHostFunc", "cuStreamIsCapturing">;
using LaunchPerThread = LaunchesHostFunction<"cuLaunchHostFunc_ptsz", "cuStreamIsCapturing_ptsz">;
using LaunchInMode = LaunchesHostFunction<"cuLaunchHostFunc_v2", "cuStreamIsCapturing", unsigned>;
using LaunchInModePerThread =
    LaunchesHostFunction<"cuLaunchHostFunc_v2_ptsz", "cuStreamIsCapturing_ptsz", unsigned>;

constexpr RuleRow callback_rows[] = {
    row<Launch>(),
    Launch::capturing_row(),
    row<LaunchPerThread>(),
    LaunchPerThread::capturing_row(),
    row<LaunchInMode>(),
    row<LaunchInModePerThread>(),
    row<AddsCallback<"cuStreamAddCallback">>(),
    row<AddsCallback<"cuStreamAddCallback_ptsz">>(),
    rule<MakeObject, make_object>(),
    rule<AddHostNode, add_host_node>(),
    rule<SetHostNode, set_host_node>(),
    rule<SetInExec, set_in_exec>(),
    rule<GetHostNode, get_host_node>(),
};

}  // namespace

constinit const std::span<const RuleRow> callback_rules = callback_rows;

}  // namespace ctxbroker::detail
