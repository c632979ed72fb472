// SPDX-License-Identifier: Apache-2.0
// Access from device to device. Software devices share the host's memory, so it is always there;
// what remains is the record that the calls are paired, which NVIDIA's driver checks too.
#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"

using namespace ctxbroker::software;

namespace {

int value_of(CUdevice_P2PAttribute attribute) {
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      return 0;  // the best there is
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
      return 1;
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      return 0;  // arrays are reached by copies alone
    default:
      fail(CUDA_ERROR_INVALID_VALUE);
  }
}

// The context that `peer` names, for the current one.
Context& other_context(const Context& current, CUcontext peer) {
  check_that(peer != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  Context& other = living_context(peer).owner;
  check_that(&other != &current, CUDA_ERROR_INVALID_CONTEXT);
  return other;
}

}  // namespace

CTXB_EXPORT CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(can != nullptr);
    find_device(device);
    find_device(peer);
    *can = device != peer;
  });
}

CTXB_EXPORT CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute,
                                             CUdevice from, CUdevice to) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    check_value(value != nullptr);
    find_device(from);
    find_device(to);
    check_that(from != to, CUDA_ERROR_INVALID_DEVICE);
    *value = value_of(attribute);
  });
}

CTXB_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& context = working_owner();
    check_value(flags == 0);
    const Context& other = other_context(context, peer);
    check_that(&context.device != &other.device, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    std::lock_guard lock(context.peers_mutex);
    check_that(context.peers.insert(&other).second, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  });
}

CTXB_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  CTXB_COUNT_CALL();
  return initialised([&] {
    Context& context = working_owner();
    const Context& other = other_context(context, peer);
    std::lock_guard lock(context.peers_mutex);
    check_that(context.peers.erase(&other) == 1, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  });
}
