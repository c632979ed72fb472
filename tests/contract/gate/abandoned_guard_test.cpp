// SPDX-License-Identifier: Apache-2.0
// Guards that the host ends on another thread than they began on, or in the wrong order. The host
// is told, no tenant is blamed, and the thread is put right as soon as it can be.
#include <gmock/gmock.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/guard.hpp"
#include "recording_broker.hpp"
#include "support/driver_by_name.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class AbandonedGuardTest : public RecordingBrokerTest,
                           public ::testing::WithParamInterface<LeaseKind> {
 public:
  void TearDown() override { driver_call("cuCtxDestroy_v2", own); }

 protected:
  AbandonedGuardTest() : tenant(open("denoise")), other(open("upscale")) {
    driver_call("cuCtxCreate_v2", &own, 0U, 0);  // the host's, current on this thread
  }

  Tenant open(const char* name) { return broker.open_tenant(name, {LeaseChoice(GetParam())}); }
  static void on_another_thread(const std::function<void()>& work) { std::thread(work).join(); }
  void abandon_guard() {
    auto guard = std::make_unique<Guard>(tenant);
    on_another_thread([&] { guard.reset(); });
  }
  void expect_nobody_is_blamed() {
    EXPECT_EQ(tenant.strikes(), 0u);
    EXPECT_EQ(other.strikes(), 0u);
    EXPECT_THAT(said(), Not(Contains(HasSubstr("strike"))));
  }

  Tenant tenant, other;
  CUcontext own = nullptr;
};
INSTANTIATE_TEST_SUITE_P(All, AbandonedGuardTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(AbandonedGuardTest, EndOnAnotherThreadIsToldToTheHostAndNobodyIsBlamed) {
  auto guard = std::make_unique<Guard>(tenant, 0, "render");
  on_another_thread([&] { guard.reset(); });
  EXPECT_THAT(said(),
              Contains(AllOf(HasSubstr("guard: the guard \"render\" in the lease of denoise"),
                             HasSubstr("ended on thread"))));
  EXPECT_EQ(current(), own) << "a question shows the thread as the host believes it to be";
  EXPECT_EQ(stack(), Stack{own});
  tenant.close();
  expect_nobody_is_blamed();
}

TEST_P(AbandonedGuardTest, ThreadThatEndedTheGuardIsLeftAlone) {
  auto guard = std::make_unique<Guard>(tenant);
  on_another_thread([&] {
    const Guard inside(other);
    const CUcontext before = current();
    guard.reset();
    EXPECT_EQ(current(), before);
  });
  expect_nobody_is_blamed();
}

TEST_P(AbandonedGuardTest, NextGuardBeginsOnARestoredThread) {
  for (Tenant* next : {&tenant, &other}) {
    abandon_guard();
    {
      const Guard again(*next);
      EXPECT_EQ(current(), next->lease().context);
    }
    EXPECT_EQ(stack(), Stack{own});
  }
  expect_nobody_is_blamed();
}

TEST_P(AbandonedGuardTest, HostMayPushAndPopWhereTheGuardWas) {
  abandon_guard();
  CUcontext popped = nullptr;
  EXPECT_EQ(driver_call("cuCtxPopCurrent_v2", &popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, own);
  EXPECT_EQ(current(), nullptr);
  driver_call("cuCtxPushCurrent_v2", own);
}

TEST_P(AbandonedGuardTest, InnerGuardsGoOnAndTheThreadIsRestoredBehindThem) {
  auto outer = std::make_unique<Guard>(tenant);
  {
    const Guard inner(other);
    const CUcontext inside = current();
    on_another_thread([&] { outer.reset(); });
    EXPECT_EQ(current(), inside);
  }
  EXPECT_EQ(stack(), Stack{own});
  expect_nobody_is_blamed();
}

TEST_P(AbandonedGuardTest, GuardsMayEndInTheWrongOrder) {
  auto first = std::make_unique<Guard>(tenant, 0, "decode");
  auto second = std::make_unique<Guard>(other);
  auto third = std::make_unique<Guard>(tenant, 0, "encode");
  const CUcontext inside = current();
  first.reset();
  EXPECT_EQ(current(), inside);
  EXPECT_THAT(said(), Contains(AllOf(HasSubstr("\"decode\""), HasSubstr("reverse order"))));
  second.reset();
  EXPECT_EQ(current(), inside);
  third.reset();
  EXPECT_EQ(stack(), Stack{own});
  expect_nobody_is_blamed();
}

// A thread that the guard's end cannot reach, because it does nothing more.
TEST_P(AbandonedGuardTest, LeaseIsFreeWhenTheThreadEnds) {
  std::optional<Guard> guard;
  std::promise<void> begun, ended;
  std::thread first([&] {
    guard.emplace(tenant);
    begun.set_value();
    ended.get_future().wait();
  });
  begun.get_future().wait();
  guard.reset();
  EXPECT_THROW(tenant.close(), Error) << "the thread is still inside";
  ended.set_value();
  first.join();
  EXPECT_NO_THROW(tenant.close());
  expect_nobody_is_blamed();
}

TEST_P(AbandonedGuardTest, GuardMayEndAfterItsThread) {
  std::optional<Guard> guard;
  on_another_thread([&] { guard.emplace(tenant, 0, "render"); });
  EXPECT_THROW(tenant.close(), Error);
  guard.reset();
  EXPECT_THAT(said(), Contains(HasSubstr("\"render\"")));
  EXPECT_NO_THROW(tenant.close());
  EXPECT_EQ(stack(), Stack{own});
  expect_nobody_is_blamed();
}

// Between both ends, the thread works for the host.
TEST_P(AbandonedGuardTest, NothingOfTheHostsIsTakenForTheTenants) {
  abandon_guard();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  driver_call("cuThreadExchangeStreamCaptureMode", &mode);
  CUdeviceptr memory = 0;
  EXPECT_EQ(driver_call("cuMemAlloc_v2", &memory, std::size_t{256}), CUDA_SUCCESS);
  EXPECT_EQ(context_of(memory), own);
  EXPECT_EQ(tenant.memory_bytes(), 0u);
  EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS);
  mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  driver_call("cuThreadExchangeStreamCaptureMode", &mode);
  expect_nobody_is_blamed();
}

TEST_P(AbandonedGuardTest, ManyThreadsMayHandTheirGuardsOn) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        auto guard = std::make_unique<Guard>(tenant);
        std::thread ends([&] { guard.reset(); });
        for (int look = 0; look < 20; ++look) current();  // beside the end
        ends.join();
        EXPECT_EQ(current(), nullptr);
        const Guard next(other);
        EXPECT_EQ(current(), other.lease().context);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  tenant.close();
  expect_nobody_is_blamed();
}

}  // namespace
}  // namespace ctxbroker
