// SPDX-License-Identifier: Apache-2.0
// Memory, modules, libraries, streams and events: what a tenant takes or makes is counted, and only
// its holder gives it back or ends it.
#include "gate/held.hpp"
#include "gate/rule.hpp"

namespace ctxbroker::detail {
namespace {

// The forms without _v2 are those of CUDA 3.1, with addresses and sizes of 32 bits. Structures that
// are only passed on are void: the calling convention knows no other difference.
using Address = CUdeviceptr;
using Old = unsigned int;

template <SymbolName name, typename A, typename Size>
using Allocates = Makes<name, Kind::memory, bytes_first, A, Size>;

// Its size is known once the driver has chosen the pitch.
template <SymbolName name, typename A, typename Size>
struct AllocatesPitched {
  using Real = DriverFunction<name, CUresult(A*, Size*, Size, Size, unsigned)>;
  static CUresult call(A* out, Size* pitch, Size width, Size height, unsigned element) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(out, pitch, width, height, element);
    // A row is at most one unit of pitch longer than asked for.
    constexpr std::uint64_t most_pitch_unit = 512;
    const std::uint64_t bytes = (static_cast<std::uint64_t>(width) + most_pitch_unit - 1) /
                                most_pitch_unit * most_pitch_unit * height;
    return make_held(*caller.tenant, Kind::memory, out, bytes,
                     [&] { return Real::call(out, pitch, width, height, element); });
  }
};

template <SymbolName name, typename Size, typename... Flags>
struct AllocatesPinned {
  using Real = DriverFunction<name, CUresult(void**, Size, Flags...)>;
  static CUresult call(void** out, Size bytes, Flags... flags) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(out, bytes, flags...);
    return make_held(*caller.tenant, Holding{.kind = Kind::host_memory, .host_bytes = bytes}, out,
                     [&] { return Real::call(out, bytes, flags...); });
  }
};

// The address is the caller's own, so the call goes in and nothing comes out.
template <SymbolName name>
struct Registers {
  using Real = DriverFunction<name, CUresult(void*, std::size_t, unsigned)>;
  static CUresult call(void* address, std::size_t bytes, unsigned flags) noexcept {
    const Caller caller = enter_rule<Real>();
    if (caller.tenant == nullptr) return Real::call(address, bytes, flags);
    const CUresult status =
        make_held(*caller.tenant, Holding{.kind = Kind::registration, .host_bytes = bytes},
                  &address, [&] { return Real::call(address, bytes, flags); });
    if (status == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) {
      tell_of_registration(address, bytes, false, caller.tenant);
    }
    return status;
  }
};

// Frees memory. Memory that a graph allocated is freed like any other, and belongs to the graph
// again if the graph still names it. A call in the order of a stream waits for nothing.
template <bool in_stream_order, SymbolName name, typename A, typename... Rest>
struct FreesAs {
  using Real = DriverFunction<name, CUresult(A, Rest...)>;
  static CUresult call(A address, Rest... rest) noexcept {
    const Caller caller = enter_rule<Real>();
    const std::uint64_t value = address;
    if (address == 0) return Real::call(address, rest...);
    if (caller.tenant == nullptr) {
      const auto refused = refuse_nobody(caller, Real::symbol, Kind::graph_memory, value);
      if (refused) return *refused;
      return end_by_host(caller, Real::symbol, Kind::memory, value,
                         [&] { return Real::call(address, rest...); });
    }
    GatedTenant& tenant = *caller.tenant;
    const auto free = [&] { return Real::call(address, rest...); };
    const auto held = ledger().remove(Kind::memory, value, tenant.holder());
    if (held) return end_forgotten(tenant, *held, free, in_stream_order);
    const auto of_graph = ledger().remove(Kind::graph_memory, value, tenant.holder());
    if (!of_graph) return end_held(tenant, Real::symbol, Kind::memory, value, free);
    const CUresult status = free();
    settle_freed(*of_graph, status);
    return status;
  }
};

template <SymbolName name, typename A>
using Frees = FreesAs<false, name, A>;
template <SymbolName name>
using FreesAsync = FreesAs<true, name, Address, CUstream>;

template <SymbolName name>
using LoadsLibrary = Counted<name, Kind::library, CUlibrary, const void*, CUjit_option*, void**,
                             unsigned, CUlibraryOption*, void**, unsigned>;

constexpr RuleRow object_rows[] = {
    row<Allocates<"cuMemAlloc", Old, Old>>(),
    row<Allocates<"cuMemAlloc_v2", Address, std::size_t>>(),
    row<AllocatesPitched<"cuMemAllocPitch", Old, Old>>(),
    row<AllocatesPitched<"cuMemAllocPitch_v2", Address, std::size_t>>(),
    row<Makes<"cuMemAllocManaged", Kind::memory, bytes_first, Address, std::size_t, unsigned>>(),
    row<Frees<"cuMemFree", Old>>(),
    row<Frees<"cuMemFree_v2", Address>>(),
    row<FreesAsync<"cuMemFreeAsync">>(),
    row<FreesAsync<"cuMemFreeAsync_ptsz">>(),

    row<AllocatesPinned<"cuMemAllocHost", Old>>(),
    row<AllocatesPinned<"cuMemAllocHost_v2", std::size_t>>(),
    row<AllocatesPinned<"cuMemHostAlloc", std::size_t, unsigned>>(),
    row<Ends<"cuMemFreeHost", Kind::host_memory, void*>>(),
    row<Registers<"cuMemHostRegister">>(),
    row<Registers<"cuMemHostRegister_v2">>(),
    row<Ends<"cuMemHostUnregister", Kind::registration, void*>>(),

    row<Counted<"cuArrayCreate", Kind::array, CUarray, const void*>>(),
    row<Counted<"cuArrayCreate_v2", Kind::array, CUarray, const void*>>(),
    row<Counted<"cuArray3DCreate", Kind::array, CUarray, const void*>>(),
    row<Counted<"cuArray3DCreate_v2", Kind::array, CUarray, const void*>>(),
    row<Ends<"cuArrayDestroy", Kind::array, CUarray>>(),
    row<Counted<"cuMipmappedArrayCreate", Kind::mipmapped_array, CUmipmappedArray, const void*,
                unsigned>>(),
    row<Ends<"cuMipmappedArrayDestroy", Kind::mipmapped_array, CUmipmappedArray>>(),

    // The driver frees these as its own.
    row<Counted<"cuExternalMemoryGetMappedBuffer", Kind::memory, Address, CUexternalMemory,
                const void*>>(),
    row<Counted<"cuExternalMemoryGetMappedMipmappedArray", Kind::mipmapped_array, CUmipmappedArray,
                CUexternalMemory, const void*>>(),

    row<Counted<"cuIpcOpenMemHandle", Kind::ipc_memory, Address, CUipcMemHandle, unsigned>>(),
    row<Counted<"cuIpcOpenMemHandle_v2", Kind::ipc_memory, Address, CUipcMemHandle, unsigned>>(),
    row<Ends<"cuIpcCloseMemHandle", Kind::ipc_memory, Address>>(),

    row<Counted<"cuModuleLoad", Kind::module, CUmodule, const char*>>(),
    row<Counted<"cuModuleLoadData", Kind::module, CUmodule, const void*>>(),
    row<Counted<"cuModuleLoadDataEx", Kind::module, CUmodule, const void*, unsigned, CUjit_option*,
                void**>>(),
    row<Counted<"cuModuleLoadFatBinary", Kind::module, CUmodule, const void*>>(),
    row<Ends<"cuModuleUnload", Kind::module, CUmodule>>(),
    row<LoadsLibrary<"cuLibraryLoadData">>(),
    row<LoadsLibrary<"cuLibraryLoadFromFile">>(),
    row<Ends<"cuLibraryUnload", Kind::library, CUlibrary>>(),

    row<Counted<"cuStreamCreate", Kind::stream, CUstream, unsigned>>(),
    row<Counted<"cuStreamCreateWithPriority", Kind::stream, CUstream, unsigned, int>>(),
    row<Counted<"cuGreenCtxStreamCreate", Kind::stream, CUstream, CUgreenCtx, unsigned, int>>(),
    row<Ends<"cuStreamDestroy", Kind::stream, CUstream>>(),
    row<Ends<"cuStreamDestroy_v2", Kind::stream, CUstream>>(),
    row<Counted<"cuEventCreate", Kind::event, CUevent, unsigned>>(),
    row<Counted<"cuEventCreateFromEGLSync", Kind::event, CUevent, void*, unsigned>>(),
    row<Counted<"cuIpcOpenEventHandle", Kind::event, CUevent, CUipcEventHandle>>(),
    row<Ends<"cuEventDestroy", Kind::event, CUevent>>(),
    row<Ends<"cuEventDestroy_v2", Kind::event, CUevent>>(),
};

}  // namespace

constinit const std::span<const RuleRow> object_rules = object_rows;

}  // namespace ctxbroker::detail
