// Modules, libraries, streams and events. What a tenant makes is counted, and only its holder ends
// it.
#include "gate/held.hpp"
#include "gate/policy.hpp"

namespace ctxbroker::detail {
namespace {

template <SymbolName name, Kind kind, typename Handle, typename... Rest>
using Counted = Makes<name, kind, no_bytes, Handle, Rest...>;

template <SymbolName name>
using LoadsLibrary = Counted<name, Kind::library, CUlibrary, const void*, CUjit_option*, void**,
                             unsigned, CUlibraryOption*, void**, unsigned>;
constexpr PolicyRow rows[] = {
    Counted<"cuModuleLoad", Kind::module, CUmodule, const char*>::row(),
    Counted<"cuModuleLoadData", Kind::module, CUmodule, const void*>::row(),
    Counted<"cuModuleLoadDataEx", Kind::module, CUmodule, const void*, unsigned, CUjit_option*,
            void**>::row(),
    Counted<"cuModuleLoadFatBinary", Kind::module, CUmodule, const void*>::row(),
    Ends<"cuModuleUnload", Kind::module, CUmodule>::row(),
    LoadsLibrary<"cuLibraryLoadData">::row(),
    LoadsLibrary<"cuLibraryLoadFromFile">::row(),
    Ends<"cuLibraryUnload", Kind::library, CUlibrary>::row(),

    Counted<"cuStreamCreate", Kind::stream, CUstream, unsigned>::row(),
    Counted<"cuStreamCreateWithPriority", Kind::stream, CUstream, unsigned, int>::row(),
    Counted<"cuGreenCtxStreamCreate", Kind::stream, CUstream, CUgreenCtx, unsigned, int>::row(),
    Ends<"cuStreamDestroy", Kind::stream, CUstream>::row(),
    Ends<"cuStreamDestroy_v2", Kind::stream, CUstream>::row(),
    Counted<"cuEventCreate", Kind::event, CUevent, unsigned>::row(),
    Counted<"cuEventCreateFromEGLSync", Kind::event, CUevent, void*, unsigned>::row(),
    Counted<"cuIpcOpenEventHandle", Kind::event, CUevent, CUipcEventHandle>::row(),
    Ends<"cuEventDestroy", Kind::event, CUevent>::row(),
    Ends<"cuEventDestroy_v2", Kind::event, CUevent>::row(),
};

}  // namespace

std::span<const PolicyRow> object_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
