// SPDX-License-Identifier: Apache-2.0
// Calls that reach the whole process.
#include <cstdint>
#include <utility>

#include "gate/held.hpp"
#include "gate/rule.hpp"

namespace ctxbroker::detail {
namespace {

constexpr CUresult unsupported = CUDA_ERROR_NOT_SUPPORTED;
constexpr CUresult forbidden = CUDA_ERROR_NOT_PERMITTED;

// A profile is of the whole process. The host starts and ends it.
template <SymbolName name>
struct Profiles {
  using Real = DriverFunction<name, CUresult()>;
  static CUresult call() noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call();
    caller.tenant->log_once(Real::symbol,
                            "ignored: it would start or end the profile of the whole process, "
                            "which only the host may do");
    return current_context() != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  }
};

template <SymbolName name>
using RefusesCheckpoint = Refuses<name, unsupported, int, void*>;
template <SymbolName name>
using RefusesCoredump = Refuses<name, forbidden, int, void*, std::size_t*>;

template <SymbolName name>
using RefusesCoredumpCallback = Refuses<name, forbidden, void*, void*, void*>;

// CUresult name(...) of so many words.
template <std::size_t>
using WordAt = std::uintptr_t;
template <SymbolName name, std::size_t... places>
Refuses<name, unsupported, WordAt<places>...> refuses_endpoint(std::index_sequence<places...>);
template <SymbolName name, std::size_t words>
using RefusesEndpoint = decltype(refuses_endpoint<name>(std::make_index_sequence<words>()));

// The driver's private tables lead past the gate. The runtime library needs some of them.
using ExportTable = DriverFunction<"cuGetExportTable", CUresult(const void**, const CUuuid*)>;
CUresult export_table(const void** table, const CUuuid* id) noexcept {
  const Caller caller = enter_rule<ExportTable>();
  if (caller.tenant != nullptr) {
    caller.tenant->mark_private_tables();
    caller.tenant->log_once(ExportTable::symbol,
                            "took private tables of the driver, as CUDA's runtime library does; "
                            "calls through them are not guarded");
  }
  return ExportTable::call(table, id);
}

constexpr RuleRow process_rows[] = {
    rule<ExportTable, export_table>(),
    row<Refuses<"cuProfilerInitialize", unsupported, const char*, const char*, int>>(),
    row<Profiles<"cuProfilerStart">>(),
    row<Profiles<"cuProfilerStop">>(),
    row<RefusesCoredump<"cuCoredumpSetAttribute">>(),
    row<RefusesCoredump<"cuCoredumpSetAttributeGlobal">>(),
    row<RefusesCheckpoint<"cuCheckpointProcessLock">>(),
    row<RefusesCheckpoint<"cuCheckpointProcessCheckpoint">>(),
    row<RefusesCheckpoint<"cuCheckpointProcessRestore">>(),
    row<RefusesCheckpoint<"cuCheckpointProcessUnlock">>(),
    row<Refuses<"cuCheckpointOperationComplete", unsupported, std::uintptr_t>>(),
    row<RefusesCoredumpCallback<"cuCoredumpRegisterStartCallback">>(),
    row<RefusesCoredumpCallback<"cuCoredumpRegisterCompleteCallback">>(),
    row<RefusesEndpoint<"cuLogicalEndpointIdReserve", 2>>(),
    row<RefusesEndpoint<"cuLogicalEndpointIdRelease", 2>>(),
    row<RefusesEndpoint<"cuLogicalEndpointCreate", 2>>(),
    row<RefusesEndpoint<"cuLogicalEndpointDestroy", 1>>(),
    row<RefusesEndpoint<"cuLogicalEndpointAddDevice", 2>>(),
    row<RefusesEndpoint<"cuLogicalEndpointBindMem", 7>>(),
    row<RefusesEndpoint<"cuLogicalEndpointBindAddr", 6>>(),
    row<RefusesEndpoint<"cuLogicalEndpointUnbind", 4>>(),
    row<RefusesEndpoint<"cuLogicalEndpointExport", 3>>(),
    row<RefusesEndpoint<"cuLogicalEndpointImport", 3>>(),
    row<Refuses<"cuLogsRegisterCallback", unsupported, void*, void*, void*>>(),
    row<Refuses<"cuDeviceRegisterAsyncNotification", unsupported, CUdevice, void*, void*, void*>>(),
};

}  // namespace

constinit const std::span<const RuleRow> process_rules = process_rows;

}  // namespace ctxbroker::detail
