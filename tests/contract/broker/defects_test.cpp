// SPDX-License-Identifier: Apache-2.0
// Defects that other code bases had in the field, those about contexts and guards; the whole list
// with its tests is docs/measurements/defects.md.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "broker_fixture.hpp"
#include "support/child_process.hpp"
#include "support/raw_driver.hpp"
#include "support/software_controls.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

class DefectTest : public BrokerTest {
 public:
  ~DefectTest() override {
    if (controls) controls.stop_counting();
  }

 protected:
  DefectTest() : driver(broker.driver().path), controls(broker.driver().path) {}
  RawDriver driver;
  SoftwareControls controls;
};

class DefectChildTest : public DefectTest {};

// A guard that retained device N and released device 0.
TEST_F(DefectChildTest, DISABLED_PrimaryRetainedOnOneDeviceIsReleasedOnThatDevice) {
  if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices";
  driver.retain_primary(0);  // the host's
  Tenant tenant = broker.open_tenant("filter", {LeaseChoice(LeaseKind::shared)});
  {
    const Guard guard(tenant, 1);
    EXPECT_TRUE(driver.primary_is_active(1));
  }
  tenant.close();
  broker.close();
  EXPECT_FALSE(driver.primary_is_active(1)) << "given back";
  EXPECT_TRUE(driver.primary_is_active(0)) << "not the broker's to give back";
  driver.call("cuDevicePrimaryCtxRelease_v2", 0);
  EXPECT_FALSE(driver.primary_is_active(0)) << "the host's retain was the only one";
}

// A destructor that popped whatever was current before it destroyed; and a borrowed current
// context that was destroyed as if it were owned.
TEST_F(DefectTest, TheHostsOwnContextOutlivesEveryLeaseAndTheBroker) {
  CUcontext own = driver.make_context();
  const auto before = driver.stack();
  Broker second = Broker::open(options());
  for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green}) {
    Tenant tenant = second.open_tenant(to_string(kind), {LeaseChoice(kind)});
    static_cast<void>(tenant.lease());
    tenant.close();
    EXPECT_EQ(driver.stack(), before) << to_string(kind);
  }
  second.close();
  EXPECT_EQ(driver.stack(), before);
  EXPECT_EQ(driver.synchronize(), CUDA_SUCCESS) << "alive";
  driver.pop_all();
  driver.destroy_context(own);
}

// A pop in the error path that was never pushed: the guard that fails to enter takes nothing.
TEST_F(DefectTest, AGuardThatCannotEnterPopsNothing) {
  if (!controls) GTEST_SKIP() << "only the software device fails calls when it is told to";
  Tenant tenant = broker.open_tenant("filter", {LeaseChoice(LeaseKind::private_own)});
  static_cast<void>(tenant.lease());
  CUcontext own = driver.make_context();
  driver.push(own);
  const auto before = driver.stack();
  controls.start_counting();
  for (const char* call : {"cuCtxPushCurrent_v2", "cuThreadExchangeStreamCaptureMode"}) {
    ASSERT_EQ(controls.fail_call(call, 1, CUDA_ERROR_OUT_OF_MEMORY), 0);
    EXPECT_THAT(error_text(ErrorKind::out_of_memory, [&] { const Guard guard(tenant); }),
                HasSubstr("cannot be entered"));
    EXPECT_STREQ(controls.failed_call(), call);
    EXPECT_EQ(driver.stack(), before) << call;
  }
  controls.stop_counting();
  { const Guard guard(tenant); }
  EXPECT_EQ(driver.stack(), before);
  EXPECT_EQ(tenant.strikes(), 0u);
  driver.pop_all();
  driver.destroy_context(own);
}

// A map keyed by the raw CUcontext that finds the dead one again: the primary that is made anew has
// the old handle.
TEST_F(DefectTest, ANewPrimaryWithTheOldHandleIsAnotherGeneration) {
  if (!controls) GTEST_SKIP() << "a shielded primary is destroyed on the software device alone";
  reopen_with(MemorySource::driver);  // its memory ends with the primary
  Tenant tenant = broker.open_tenant("filter", {LeaseChoice(LeaseKind::shared)});
  const LeaseInfo old = tenant.lease();
  const std::uint64_t dead = tenant.allocate(4096);
  controls.start_counting();
  ASSERT_EQ(controls.fail_call("cuMemAlloc_v2", 1, CUDA_ERROR_CONTEXT_IS_DESTROYED), 0);
  EXPECT_THROW(static_cast<void>(tenant.allocate(4096)), Error);
  const LeaseInfo anew = tenant.lease();
  EXPECT_EQ(anew.context, old.context) << "the handle is the same, or this test shows nothing";
  EXPECT_GT(anew.generation, old.generation);
  const std::uint64_t alive = tenant.allocate(4096);
  // Memory of the dead generation is not freed in the new one, where its address may be that of
  // other memory.
  const std::uint64_t frees = controls.call_count("cuMemFree_v2");
  tenant.release(dead == alive ? alive : dead);
  EXPECT_EQ(controls.call_count("cuMemFree_v2"), frees + (dead == alive ? 1 : 0));
}

// The same unseen: nobody tells the broker that the primary died, and a neighbour's new green
// context would revive it, under the same handle.
TEST_F(DefectTest, APrimaryThatDiedUnseenIsNotTakenForAlive) {
  if (!controls) GTEST_SKIP() << "a shielded primary is destroyed on the software device alone";
  Tenant shared = broker.open_tenant("shared", {LeaseChoice(LeaseKind::shared)});
  const LeaseInfo old = shared.lease();
  static_cast<void>(shared.allocate(4096));
  controls.start_counting();
  {
    const Entered inside(driver, old.context);
    ASSERT_EQ(controls.fail_call("cuCtxSynchronize", 1, CUDA_ERROR_CONTEXT_IS_DESTROYED), 0);
    EXPECT_EQ(driver.synchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  }
  Tenant green = broker.open_tenant("green", {{LeaseKind::green, 2}});
  static_cast<void>(green.lease());
  EXPECT_GT(shared.lease().generation, old.generation);
}

// A guard that re-activates a context destroyed meanwhile.
TEST_F(DefectTest, AGuardDoesNotGoBackIntoADestroyedContext) {
  if (!controls) GTEST_SKIP() << "NVIDIA's driver may crash on the handle of a destroyed context";
  Tenant tenant = broker.open_tenant("filter", {LeaseChoice(LeaseKind::private_own)});
  Tenant other = broker.open_tenant("other", {LeaseChoice(LeaseKind::green)});
  const LeaseInfo old = tenant.lease();
  {
    const Guard outer(other);
    driver.destroy_context(old.context);
    // The driver lets a dead context be entered; the first use tells, and then nobody enters it.
    EXPECT_THAT(error_text(ErrorKind::context_lost, [&] { return tenant.allocate(4096); }),
                HasSubstr("CONTEXT_IS_DESTROYED"));
    EXPECT_EQ(driver.current(), other.lease().context) << "the outer guard stands";
    const Guard again(tenant);
    EXPECT_GT(tenant.lease().generation, old.generation);
    EXPECT_EQ(driver.current(), tenant.lease().context);
  }
  EXPECT_EQ(driver.current(), nullptr);
}

// A library closed while what it brought is in use: here a host function in the middle of its work.
TEST_F(DefectTest, ALibraryIsNotUnloadedUnderItsOwnWork) {
  Tenant tenant = broker.open_tenant("format", {LeaseChoice(LeaseKind::green), false, true});
  static std::atomic<int> done;
  done = 0;
  {
    const AdoptedLibrary library = tenant.adopt(test_plugin("callback"));
    auto* callback = reinterpret_cast<CUhostFn>(library.symbol("ctxb_test_callback"));
    ASSERT_NE(callback, nullptr);
    CUstream stream = tenant.create_stream();
    const Guard guard(tenant);
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(driver.launch_host_function(stream, callback, &done), CUDA_SUCCESS);
    }
  }
  tenant.close();
  EXPECT_EQ(done, 2);
  EXPECT_EQ(dlopen(test_plugin("callback").c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr)
      << "it was unloaded, or this test shows nothing";
}

// A helper thread that sets no device and makes a primary context on device 0 behind one's back.
TEST_F(DefectChildTest, DISABLED_NoThreadOfTheBrokerTouchesADeviceThatNobodyAskedFor) {
  if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices";
  BrokerOptions with = options();
  with.ready.green = 2;  // by a thread that makes contexts ahead
  Broker second = Broker::open(with);
  Tenant tenant = second.open_tenant("filter", {LeaseChoice(LeaseKind::green)});
  tenant.run(1, [] {});
  std::thread([&] { tenant.run(1, [] {}); }).join();
  EXPECT_TRUE(second.wait_until_ready());
  EXPECT_TRUE(driver.primary_is_active(1));
  EXPECT_FALSE(driver.primary_is_active(0));
  tenant.close();
}

class OnTwoDevices : public ::testing::TestWithParam<const char*> {};

TEST_P(OnTwoDevices, ChildTestPasses) {
  const ChildResult child = run_child(std::string("DefectChildTest.DISABLED_") + GetParam(),
                                      {{"CTXBROKER_SOFTWARE_DEVICES", "2"}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  if (child.output.find("[  SKIPPED ]") != std::string::npos) GTEST_SKIP() << "needs two devices";
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

INSTANTIATE_TEST_SUITE_P(Defects, OnTwoDevices,
                         ::testing::Values("PrimaryRetainedOnOneDeviceIsReleasedOnThatDevice",
                                           "NoThreadOfTheBrokerTouchesADeviceThatNobodyAskedFor"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace ctxbroker
