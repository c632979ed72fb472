// SPDX-License-Identifier: Apache-2.0
// A driver that refuses to free: what it refused has not happened, and is tried again.
#include <gmock/gmock.h>

#include <optional>
#include <string>

#include "broker_fixture.hpp"
#include "ctxbroker/metrics.hpp"
#include "support/raw_driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

class RefusedFreeTest : public BrokerTest {
 public:
  ~RefusedFreeTest() override {
    if (controls) controls.stop_counting();
  }

 protected:
  RefusedFreeTest() : driver(broker.driver().path), controls(broker.driver().path) {
    reopen_with(MemorySource::driver);  // free memory is exact, and cuMemFree is what is refused
  }
  void SetUp() override {
    if (!controls) GTEST_SKIP() << "only the software device fails calls when it is told to";
    controls.start_counting();
    keeper = in_primary("keeper");  // so that what a first lease takes is there
    static_cast<void>(keeper->lease());
    primary = driver.retain_primary(0);
  }
  void TearDown() override {
    if (primary != nullptr) driver.call("cuDevicePrimaryCtxRelease_v2", 0);
  }
  void refuse(const char* call, std::uint64_t nth = 1) {
    ASSERT_EQ(controls.fail_call(call, nth, CUDA_ERROR_UNKNOWN), 0);
  }
  std::size_t free_memory() const {
    const Entered inside(driver, primary);
    return driver.free_memory();
  }
  Tenant in_primary(const std::string& name, MemorySource memory = MemorySource::driver) {
    TenantOptions all;
    all.lease = LeaseChoice(LeaseKind::shared);
    all.memory = memory;
    return broker.open_tenant(name, all);
  }

  RawDriver driver;
  SoftwareControls controls;
  CUcontext primary = nullptr;
  std::optional<Tenant> keeper;
};

TEST_F(RefusedFreeTest, MemoryIsHeldUntilAReleaseSucceeds) {
  Tenant tenant = in_primary("filter");
  const std::size_t before = free_memory();
  const std::uint64_t address = tenant.allocate(mebibyte);
  refuse("cuMemFree_v2");
  EXPECT_THAT(error_text(ErrorKind::driver_call, [&] { tenant.release(address); }),
              HasSubstr("still holds"));
  EXPECT_EQ(tenant.memory_bytes(), mebibyte);
  EXPECT_EQ(before - free_memory(), mebibyte);
  EXPECT_THAT(broker.metrics().put_off, IsEmpty()) << "the tenant has it, and may release it";
  broker.poll();
  EXPECT_EQ(tenant.memory_bytes(), mebibyte) << "nobody frees what the tenant may still use";
  EXPECT_NO_THROW(tenant.release(address));
  EXPECT_EQ(tenant.memory_bytes(), 0u);
  EXPECT_EQ(free_memory(), before);
  EXPECT_THROW(tenant.release(address), Error) << "a control";
}

TEST_F(RefusedFreeTest, MemoryOfAPoolIsHeldUntilAReleaseSucceeds) {
  Tenant tenant = in_primary("filter", MemorySource::pool);
  const std::uint64_t address = tenant.allocate(mebibyte);
  refuse("cuMemFreeAsync");
  EXPECT_THAT(error_text(ErrorKind::driver_call, [&] { tenant.release(address); }),
              HasSubstr("still holds"));
  EXPECT_EQ(tenant.memory_bytes(), mebibyte);
  EXPECT_NO_THROW(tenant.release(address));
  EXPECT_EQ(tenant.memory_bytes(), 0u);
  EXPECT_THROW(tenant.release(address), Error) << "a control";
}

TEST_F(RefusedFreeTest, PoolOfAClosedTenantIsEndedAtThePollAfterARefusal) {
  const std::size_t before = free_memory();
  Tenant tenant = in_primary("filter", MemorySource::pool);
  static_cast<void>(tenant.allocate(mebibyte));
  refuse("cuMemPoolDestroy");
  tenant.close();
  broker.poll();  // twice: if work ran on the device, the first poll is the one that is refused
  broker.poll();
  EXPECT_NE(controls.failed_call(), nullptr) << "a control";
  EXPECT_THAT(said("lease"), Contains(HasSubstr("a pool of device memory could not be ended")));
  EXPECT_EQ(free_memory(), before);
}

TEST_F(RefusedFreeTest, StreamIsHeldUntilItsEndSucceeds) {
  Tenant tenant = in_primary("filter");
  const CUstream stream = tenant.create_stream();
  refuse("cuStreamDestroy_v2");
  error_text(ErrorKind::driver_call, [&] { tenant.destroy_stream(stream); });
  EXPECT_NO_THROW(tenant.destroy_stream(stream));
  EXPECT_THROW(tenant.destroy_stream(stream), Error) << "a control";
}

TEST_F(RefusedFreeTest, MemoryOfAClosedTenantIsFreedAtThePollAfterARefusal) {
  const std::size_t before = free_memory();
  Tenant tenant = in_primary("filter");
  static_cast<void>(tenant.allocate(mebibyte));
  refuse("cuMemFree_v2");
  tenant.close();
  EXPECT_EQ(before - free_memory(), mebibyte);
  EXPECT_EQ(tenant.memory_bytes(), mebibyte);
  const BrokerMetrics metrics = broker.metrics();
  ASSERT_THAT(metrics.put_off, SizeIs(1));
  EXPECT_EQ(metrics.put_off[0].tenant_name, "filter");
  EXPECT_EQ(metrics.put_off[0].what, "device memory");
  EXPECT_EQ(metrics.put_off[0].bytes, mebibyte);
  EXPECT_THAT(said("lease"), Contains(HasSubstr("device memory could not be ended")));
  broker.poll();
  EXPECT_EQ(free_memory(), before);
  EXPECT_EQ(tenant.memory_bytes(), 0u);
  EXPECT_THAT(broker.metrics().put_off, IsEmpty());
}

TEST_F(RefusedFreeTest, MemoryOfAClosedTenantIsFreedWhenTheBrokerCloses) {
  Broker second = Broker::open(options());
  TenantOptions shared;
  shared.lease = LeaseChoice(LeaseKind::shared);
  shared.memory = MemorySource::driver;
  Tenant tenant = second.open_tenant("filter", shared);
  static_cast<void>(tenant.lease());
  const std::size_t before = free_memory();
  static_cast<void>(tenant.allocate(mebibyte));
  refuse("cuMemFree_v2");
  tenant.close();
  broker.poll();
  EXPECT_EQ(before - free_memory(), mebibyte) << "another broker leaves it alone";
  second.close();
  EXPECT_GE(free_memory(), before);
}

TEST_F(RefusedFreeTest, PluginWhoseReleaseIsRefusedGetsNoStrike) {
  PluginInstance instance = active("scratch", LeaseKind::shared);
  const std::size_t before = free_memory();
  refuse("cuMemFree_v2");
  instance.deactivate();
  EXPECT_NE(controls.failed_call(), nullptr) << "a control";
  EXPECT_EQ(instance.metrics().strikes, 0u);
  EXPECT_GE(free_memory() - before, 64u * 64 * 16) << "it was tried again";
  EXPECT_THAT(broker.metrics().put_off, IsEmpty());
}

}  // namespace
}  // namespace ctxbroker
