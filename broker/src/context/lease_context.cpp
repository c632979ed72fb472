// SPDX-License-Identifier: Apache-2.0
#include "context/lease_context.hpp"

#include "context/guard.hpp"

namespace ctxbroker::detail {
namespace {

// The one flag that a green context must be made with.
constexpr unsigned green_flags = CU_GREEN_CTX_DEFAULT_STREAM;

}  // namespace

CUresult create_green(const DeviceAccess& device, CUdevResourceDesc description, CUgreenCtx* green,
                      CUcontext* context) noexcept {
  const DriverTable& table = device.table();
  const CUresult created = table.green_create(green, description, device.handle(), green_flags);
  if (created != CUDA_SUCCESS) return created;
  const CUresult converted = table.green_context(context, *green);
  if (converted != CUDA_SUCCESS) {
    table.green_destroy(*green);
    *green = nullptr;
  }
  return converted;
}

CUresult create_private(const DeviceAccess& device, CUcontext* context) noexcept {
  // cuCtxCreate pushes what it makes; inside a guard for "no context" that is undone in any case.
  return guarded({&device.table(), nullptr, 0}, {},
                 [&] { return device.table().ctx_create(context, 0, device.handle()); });
}

CUresult destroy(const DeviceAccess& device, const LeaseContext& context) noexcept {
  if (context.green != nullptr) return device.table().green_destroy(context.green);
  if (context.granted.kind != LeaseKind::private_own) return CUDA_SUCCESS;
  // Destroying a context that is current pops it: keep the caller's stack out of it.
  return guarded({&device.table(), nullptr, 0}, {},
                 [&] { return device.table().ctx_destroy(context.context); });
}

}  // namespace ctxbroker::detail
