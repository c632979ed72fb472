// SPDX-License-Identifier: Apache-2.0
// cuGreenCtx*. What is not documented follows NVIDIA's driver 580.159.04 on an H200: the handle of
// a green context is also that of its CUcontext, which is valid only once it was converted.
#include <algorithm>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/green.hpp"

namespace ctxbroker::software {
namespace {

CUcontext context_handle(CUgreenCtx handle) noexcept {
  return reinterpret_cast<CUcontext>(handle);
}

// Dead or alive.
Context& any_green(CUgreenCtx handle) {
  Context* context = Process::instance().contexts.find(context_handle(handle));
  check_that(context != nullptr && context->kind == ContextKind::green, CUDA_ERROR_INVALID_CONTEXT);
  return *context;
}

}  // namespace

Context& living_green(CUgreenCtx handle) {
  Context& context = any_green(handle);
  context.check_alive();
  return context;
}

CUdevResourceDesc DescriptorTable::add(const MultiprocessorResource& resource) {
  std::unique_lock lock(mutex_);
  auto found = std::find_if(resources_.begin(), resources_.end(), [&](const auto& entry) {
    return entry.second.members == resource.members && entry.second.device == resource.device;
  });
  if (found == resources_.end()) found = resources_.emplace(resources_.size() + 1, resource).first;
  return make_handle<CUdevResourceDesc>(HandleKind::descriptor, found->first);
}

std::optional<MultiprocessorResource> DescriptorTable::find(CUdevResourceDesc handle) const {
  std::shared_lock lock(mutex_);
  for (const auto& [serial, resource] : resources_)
    if (make_handle<CUdevResourceDesc>(HandleKind::descriptor, serial) == handle) return resource;
  return std::nullopt;
}

}  // namespace ctxbroker::software

using namespace ctxbroker::software;

CTXB_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx* green, CUdevResourceDesc descriptor,
                                      CUdevice device, unsigned int flags) {
  CTXB_COUNT_CALL();
  return working([&] {
    Device& found = find_device(device);
    check_value(green != nullptr && flags == CU_GREEN_CTX_DEFAULT_STREAM);
    auto resource = Process::instance().descriptors.find(descriptor);
    check_value(resource.has_value() && resource->device == device);
    if (Context* const primary = found.primary()) wait_for_kernels(*primary);
    *green = reinterpret_cast<CUgreenCtx>(found.create_green(resource->members).handle);
  });
}

CTXB_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& context = any_green(green);
    return context.device.destroy_green(context);
  });
}

CTXB_EXPORT CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& found = living_green(green);
    check_value(context != nullptr);
    found.converted = true;
    *context = found.handle;
  });
}

#if CUDA_VERSION >= 12090
CTXB_EXPORT CUresult cuGreenCtxGetId(CUgreenCtx green, unsigned long long* id) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(id != nullptr);
    CUcontext current = context_stack::top();
    *id = living_green(green != nullptr ? green : reinterpret_cast<CUgreenCtx>(current)).id;
  });
}
#endif
