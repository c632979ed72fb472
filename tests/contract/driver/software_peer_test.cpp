// SPDX-License-Identifier: Apache-2.0
// Two devices in one process. What the tests with two GPUs assert too.
#include <cstdlib>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

// Their primary contexts, nothing current.
struct TwoDevices {
  TwoDevices() {
    setenv("CTXBROKER_SOFTWARE_DEVICES", "2", 1);
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary[i], i), CUDA_SUCCESS);
  }
  CUdeviceptr allocate(int on, unsigned value) const {
    CUdeviceptr address = 0;
    EXPECT_EQ(d.cuCtxSetCurrent(primary[on]), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAlloc_v2(&address, 4), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemsetD32_v2(address, value, 1), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    return address;
  }
  unsigned read(CUdeviceptr address) const {
    unsigned value = 0;
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, 4), CUDA_SUCCESS);
    return value;
  }

  const Driver& d = driver();
  CUcontext primary[2] = {};
};

TEST(SoftwarePeers, AccessIsSwitchedOnAndOffInPairs) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    TwoDevices two;
    const Driver& d = two.d;
    CUcontext other = nullptr;
    EXPECT_EQ(d.cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxEnablePeerAccess(two.primary[1], 0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(d.cuCtxSetCurrent(two.primary[0]), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxDisablePeerAccess(two.primary[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    EXPECT_EQ(d.cuCtxEnablePeerAccess(two.primary[1], 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(d.cuCtxEnablePeerAccess(two.primary[1], 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxEnablePeerAccess(two.primary[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    EXPECT_EQ(d.cuCtxEnablePeerAccess(other, 0), CUDA_SUCCESS) << "another context of that device";
    EXPECT_EQ(d.cuCtxEnablePeerAccess(two.primary[0], 0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(d.cuCtxEnablePeerAccess(nullptr, 0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(d.cuCtxDisablePeerAccess(two.primary[1]), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxDisablePeerAccess(two.primary[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    CUcontext same = nullptr;
    EXPECT_EQ(d.cuCtxCreate_v2(&same, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxEnablePeerAccess(two.primary[0], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  });
}

TEST(SoftwarePeers, DevicesTellTheirPeerAbilities) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    TwoDevices two;
    const Driver& d = two.d;
    int value = -1;
    EXPECT_EQ(d.cuDeviceCanAccessPeer(&value, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(value, 1);
    EXPECT_EQ(d.cuDeviceCanAccessPeer(&value, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(value, 0);
    EXPECT_EQ(d.cuDeviceCanAccessPeer(&value, 0, 2), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(d.cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1),
              CUDA_SUCCESS);
    EXPECT_EQ(value, 1);
    EXPECT_EQ(d.cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1),
              CUDA_ERROR_INVALID_DEVICE);
    EXPECT_EQ(d.cuDeviceGetP2PAttribute(nullptr, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1),
              CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(d.cuDeviceGetP2PAttribute(&value, static_cast<CUdevice_P2PAttribute>(99), 0, 1),
              CUDA_ERROR_INVALID_VALUE);
  });
}

TEST(SoftwarePeers, PeerCopyGoesFromOneDeviceToTheOther) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    TwoDevices two;
    const Driver& d = two.d;
    CUdeviceptr first = two.allocate(0, 11), second = two.allocate(1, 22);
    EXPECT_EQ(d.cuMemcpyPeer(first, two.primary[0], second, two.primary[1], 4), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(two.read(first), 22u);
    EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(1), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(two.primary[0]), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyPeer(first, two.primary[0], second, two.primary[1], 4),
              CUDA_ERROR_CONTEXT_IS_DESTROYED);
  });
}

TEST(SoftwarePeers, AResetLeavesTheOtherDeviceAlone) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    TwoDevices two;
    const Driver& d = two.d;
    CUdeviceptr first = two.allocate(0, 11), second = two.allocate(1, 22);
    EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(two.primary[1]), CUDA_SUCCESS);
    EXPECT_EQ(two.read(second), 22u);
    unsigned value = 0;
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, first, 4), CUDA_ERROR_INVALID_VALUE) << "that one is gone";
  });
}

}  // namespace
}  // namespace ctxbroker::test
