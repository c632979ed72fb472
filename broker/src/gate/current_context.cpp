#include "gate/current_context.hpp"

#include "gate/held.hpp"

namespace ctxbroker::detail {
namespace {

using Current = DriverFunction<"cuCtxGetCurrent", CUresult(CUcontext*)>;

}  // namespace

CUcontext current_context() noexcept {
  CUcontext current = nullptr;
  return Current::call(&current) == CUDA_SUCCESS ? current : nullptr;
}

bool alone_in_context(const Caller& caller) noexcept {
  const CUcontext current = current_context();
  if (current == nullptr) return true;
  if (owners().owner(Kind::context, handle_value(current)) == caller.tenant->id()) return true;
  const int device = caller.tenant->device_of(current);
  CapturedLease lease;
  return device >= 0 && caller.tenant->has_lease(device) &&
         caller.tenant->lease(device, &lease) == CUDA_SUCCESS &&
         lease.kind == LeaseKind::private_own;
}

}  // namespace ctxbroker::detail
