// Calls that keep the calling thread waiting for the device: the driver's own, and timed.
#include "gate/policy.hpp"
#include "gate/timed_wait.hpp"

namespace ctxbroker::detail {
namespace {

template <SymbolName name, typename... Parameters>
struct Waits {
  using Real = DriverFunction<name, CUresult(Parameters...)>;
  static CUresult call(Parameters... parameters) noexcept {
    const Caller caller = enter_policy<Real>();
    if (caller.tenant == nullptr) return Real::call(parameters...);
    const TimedWait wait(*caller.tenant, Real::symbol);
    return Real::call(parameters...);
  }
  static constexpr PolicyRow row() { return policy<Real, call>(); }
};

constexpr PolicyRow rows[] = {
    Waits<"cuCtxSynchronize">::row(),
    Waits<"cuCtxSynchronize_v2", CUcontext>::row(),
    Waits<"cuStreamSynchronize", CUstream>::row(),
    Waits<"cuStreamSynchronize_ptsz", CUstream>::row(),
    Waits<"cuEventSynchronize", CUevent>::row(),
};

}  // namespace

std::span<const PolicyRow> wait_policies() noexcept {
  return rows;
}

}  // namespace ctxbroker::detail
