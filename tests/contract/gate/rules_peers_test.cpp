// SPDX-License-Identifier: Apache-2.0
// Peer access: given to and taken from each tenant alone.
#include <gmock/gmock.h>

#include "rules_fixture.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class PeersTest : public RulesTest {
 protected:
  void SetUp() override {
    if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices; the driver has one";
    int can = 0;
    raw.call("cuDeviceCanAccessPeer", &can, 0, 1);
    if (can == 0) GTEST_SKIP() << "the devices cannot reach each other";
    ASSERT_EQ(raw.call("cuDevicePrimaryCtxRetain", &primary, 1), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (primary != nullptr) raw.call("cuDevicePrimaryCtxRelease_v2", 1);
  }
  CUresult enable(Tenant& tenant) {
    return tenant.run(0, [&] { return driver_call("cuCtxEnablePeerAccess", primary, 0U); });
  }
  CUresult disable(Tenant& tenant) {
    return tenant.run(0, [&] { return driver_call("cuCtxDisablePeerAccess", primary); });
  }
  // Asked of the driver, and left as it was.
  bool really_enabled(Tenant& in) {
    return in.run(0, [&] {
      const CUresult status = raw.call("cuCtxEnablePeerAccess", primary, 0U);
      if (status == CUDA_SUCCESS) raw.call("cuCtxDisablePeerAccess", primary);
      return status == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    });
  }
  CUcontext primary = nullptr;  // of device 1
};

TEST_F(PeersTest, PeerAccessOfOneTenantIsNotEndedByAnother) {
  Tenant first = open(broker, "first", LeaseKind::shared);
  Tenant second = open(broker, "second", LeaseKind::shared);
  EXPECT_EQ(disable(first), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_FALSE(really_enabled(first));
  EXPECT_EQ(enable(first), CUDA_SUCCESS);
  EXPECT_TRUE(really_enabled(first));
  EXPECT_EQ(enable(first), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(disable(second), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(enable(second), CUDA_SUCCESS);
  EXPECT_EQ(held(second, "peer access").count, 1U);
  EXPECT_EQ(disable(first), CUDA_SUCCESS);
  EXPECT_TRUE(really_enabled(second)) << "the other one has it still";
  EXPECT_EQ(enable(first), CUDA_SUCCESS);
  second.close();
  EXPECT_TRUE(really_enabled(first));
  EXPECT_THAT(said(), Contains(HasSubstr("gave back what the tenant left: 1 x peer access")));
  EXPECT_EQ(disable(first), CUDA_SUCCESS);
  EXPECT_FALSE(really_enabled(first)) << "the last one has given it back";
}

TEST_F(PeersTest, HostAndTenantDoNotEndEachOthersPeerAccess) {
  Tenant tenant = open(broker, "tenant", LeaseKind::shared);
  CUcontext here = nullptr;
  ASSERT_EQ(driver_call("cuDevicePrimaryCtxRetain", &here, 0), CUDA_SUCCESS);
  ASSERT_EQ(driver_call("cuCtxPushCurrent_v2", here), CUDA_SUCCESS);
  EXPECT_EQ(enable(tenant), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuCtxDisablePeerAccess", primary), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  EXPECT_EQ(driver_call("cuCtxEnablePeerAccess", primary, 0U), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuCtxDisablePeerAccess", primary), CUDA_SUCCESS);
  EXPECT_TRUE(really_enabled(tenant));
  tenant.close();
  EXPECT_EQ(driver_call("cuCtxEnablePeerAccess", primary, 0U), CUDA_SUCCESS);
  EXPECT_EQ(driver_call("cuCtxDisablePeerAccess", primary), CUDA_SUCCESS);
  driver_call("cuCtxPopCurrent_v2", &here);
  driver_call("cuDevicePrimaryCtxRelease_v2", 0);
}

TEST_F(PeersTest, PeerAccessThatTheDriverDoesNotDisableIsHeldAsBefore) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "the driver cannot be told to refuse";
  Tenant tenant = open(broker, "tenant", LeaseKind::shared);
  EXPECT_EQ(enable(tenant), CUDA_SUCCESS);
  controls.fail_call("cuCtxDisablePeerAccess", 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(disable(tenant), CUDA_ERROR_INVALID_VALUE);
  controls.stop_counting();
  EXPECT_EQ(held(tenant, "peer access").count, 1U);
  EXPECT_EQ(enable(tenant), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  EXPECT_EQ(disable(tenant), CUDA_SUCCESS);
  EXPECT_EQ(held(tenant, "peer access").count, 0U);
  EXPECT_FALSE(really_enabled(tenant));
}

TEST_F(PeersTest, PeerAccessEnabledByTheBrokerIsTheTenants) {
  Tenant first = open(broker, "first", LeaseKind::shared);
  Tenant second = open(broker, "second", LeaseKind::shared);
  first.enable_peer_access(0, 1);
  first.enable_peer_access(0, 1);  // twice is no error
  EXPECT_EQ(enable(second), CUDA_SUCCESS);
  EXPECT_EQ(disable(second), CUDA_SUCCESS);
  EXPECT_TRUE(really_enabled(first));
  first.close();
  EXPECT_FALSE(really_enabled(second));
}

}  // namespace
}  // namespace ctxbroker
