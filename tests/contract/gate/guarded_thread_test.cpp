// SPDX-License-Identifier: Apache-2.0
// Guards where the gate watches: they look only where something may have happened, and leave a
// thread as it was all the same, whatever host and plug-in did to it through the driver's name.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "attacks/attacks.h"
#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "support/driver_by_name.hpp"
#include "support/software_controls.hpp"
#include "support/test_library.hpp"

namespace ctxbroker {
namespace {

class GuardedThreadTest : public ::testing::Test {
 protected:
  GuardedThreadTest()
      : broker(Broker::open()),
        library_owner(broker.open_tenant("disorderly", {LeaseChoice(LeaseKind::green)})),
        library(library_owner.adopt(test_library("attacks_proc_address"))),
        attack(reinterpret_cast<attack_function*>(library.symbol(ATTACK))) {
    for (const LeaseKind kind : {LeaseKind::shared, LeaseKind::private_own, LeaseKind::green})
      tenants.push_back(broker.open_tenant("tenant", {LeaseChoice(kind)}));
    driver_call("cuDevicePrimaryCtxRetain", &primary, 0);
    driver_call("cuCtxCreate_v2", &own, 0U, 0);
    driver_call("cuCtxPopCurrent_v2", &own);
  }
  void TearDown() override {
    driver_call("cuCtxDestroy_v2", own);
    driver_call("cuDevicePrimaryCtxRelease_v2", 0);
  }

  // One thing that the library may do to the thread.
  void disturb(std::mt19937& random) {
    constexpr const char* attacks[] = {
        "leave_context_pushed",     "pop_too_much", "set_device",
        "create_context_and_leave", "reset",        "leave_global_capture"};
    disturb(attacks[random() % std::size(attacks)]);
  }
  void disturb(const char* how) {
    const AttackTarget nothing{};
    attack(how, &nothing);
  }

  void go_through(unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 12; ++round) {
      Stack before;
      // The host's thread has none, one or two contexts of the host's own.
      for (unsigned depth = random() % 3; depth > 0; --depth) {
        before.push_back(depth % 2 != 0 ? primary : own);
        driver_call("cuCtxPushCurrent_v2", before.back());
      }
      for (int use = 0; use < 4; ++use) {
        Tenant& tenant = random() % 2 != 0 ? library_owner : tenants[random() % tenants.size()];
        const Guard outer(tenant);
        const CUcontext inside = current();
        EXPECT_EQ(inside, tenant.lease().context);
        if (&tenant == &library_owner && random() % 2 != 0) disturb(random);
        {
          const Guard nested(tenant);
          EXPECT_EQ(current(), inside);
          if (random() % 3 == 0) {
            Tenant& other = tenants[random() % tenants.size()];
            const Guard another(other);
            EXPECT_EQ(current(), other.lease().context);
          }
          if (&tenant == &library_owner && random() % 3 == 0) disturb(random);
        }
        const Guard again(tenant);
        EXPECT_EQ(current(), inside);
      }
      EXPECT_EQ(stack(), before);
      CUcontext popped = nullptr;
      for (std::size_t i = 0; i < before.size(); ++i) driver_call("cuCtxPopCurrent_v2", &popped);
      ASSERT_EQ(current(), nullptr);
    }
  }

  Broker broker;
  Tenant library_owner;
  AdoptedLibrary library;
  attack_function* attack;
  std::vector<Tenant> tenants;
  CUcontext primary = nullptr, own = nullptr;
};

TEST_F(GuardedThreadTest, ThreadIsAsBeforeAfterAnySequenceOfCalls) {
  // A context that is left behind takes a real driver a fifth of a second.
  const unsigned seeds = driver_is_software() ? 1000 : 10;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    go_through(seed);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(GuardedThreadTest, GuardCostsOnePushAndOnePopAndNothingWhenNested) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device counts its calls";
  Tenant& tenant = tenants.back();
  { const Guard first(tenant); }  // makes the lease, and looks at the thread
  const auto calls = [&](auto&& work) {
    controls.start_counting();
    work();
    const auto made = controls.call_count(nullptr);
    controls.stop_counting();
    return made;
  };
  EXPECT_EQ(calls([&] { const Guard outer(tenant); }), 2U);
  EXPECT_EQ(calls([&] {
              const Guard outer(tenant);
              for (int i = 0; i < 100; ++i) const Guard nested(tenant);
            }),
            2U);
  // A host call in between is seen, and looked at once. Its context is not taken away.
  driver_call("cuCtxPushCurrent_v2", own);
  EXPECT_GT(calls([&] { const Guard outer(tenant); }), 2U);
  EXPECT_EQ(calls([&] { const Guard outer(tenant); }), 2U);
  driver_call("cuCtxSetCurrent", own);  // no change
  EXPECT_EQ(calls([&] { const Guard outer(tenant); }), 2U);
  EXPECT_EQ(stack(), Stack{own});
  driver_call("cuCtxPopCurrent_v2", &own);
  { const Guard looks(tenant); }
  EXPECT_EQ(calls([&] { const Guard outer(tenant); }), 2U);
  // A thread that the broker has never seen is looked at first.
  std::thread([&] {
    EXPECT_GT(calls([&] { const Guard outer(tenant); }), 2U);
    EXPECT_EQ(calls([&] { const Guard outer(tenant); }), 2U);
  }).join();
}

// Guarded code cannot reach the context below its guard, even if it makes no context current.
TEST_F(GuardedThreadTest, HostsContextIsOutOfReachOfGuardedCode) {
  for (int known = 0; known < 2; ++known) {
    driver_call("cuCtxPushCurrent_v2", own);
    for (int round = 0; round <= known; ++round) {  // looked at, and known
      const Guard guard(library_owner);
      EXPECT_EQ(driver_call("cuCtxSetCurrent", CUcontext{nullptr}), CUDA_SUCCESS);
      EXPECT_EQ(current(), nullptr);
      CUdeviceptr address = 0;
      EXPECT_EQ(driver_call("cuMemAlloc_v2", &address, std::size_t{16}),
                CUDA_ERROR_INVALID_CONTEXT);
    }
    EXPECT_EQ(stack(), Stack{own});
    for (int round = 0; round <= known; ++round) {
      const Guard guard(library_owner);
      CUcontext made = nullptr;
      ASSERT_EQ(driver_call("cuCtxCreate_v2", &made, 0U, 0), CUDA_SUCCESS);
      ASSERT_EQ(driver_call("cuCtxPopCurrent_v2", &made), CUDA_SUCCESS);
      ASSERT_EQ(driver_call("cuCtxSetCurrent", made), CUDA_SUCCESS);
      ASSERT_EQ(driver_call("cuCtxDestroy_v2", made), CUDA_SUCCESS);
      EXPECT_NE(current(), own);
    }
    EXPECT_EQ(stack(), Stack{own});
    driver_call("cuCtxPopCurrent_v2", &own);
  }
}

// Nor does the open capture of a stream change that, or what is left on top be taken for the
// host's, when it is the same context.
TEST_F(GuardedThreadTest, TheHostsContextIsOutOfReachBesideACapture) {
  Tenant& tenant = tenants[0];  // whose lease is the primary
  ASSERT_EQ(tenant.lease().context, primary);
  driver_call("cuCtxPushCurrent_v2", primary);
  for (int known = 0; known < 2; ++known) {
    for (int round = 0; round <= known; ++round) {  // looked at, and known
      const Guard guard(tenant);
      if (round < known) continue;
      disturb("leave_global_capture");
      disturb("leave_context_pushed");
    }
    EXPECT_EQ(stack(), Stack{primary});
    for (int round = 0; round <= known; ++round) {
      const Guard guard(tenant);
      if (round < known) continue;
      disturb("leave_global_capture");
      EXPECT_EQ(driver_call("cuCtxSetCurrent", CUcontext{nullptr}), CUDA_SUCCESS);
      EXPECT_EQ(current(), nullptr);
    }
    EXPECT_EQ(stack(), Stack{primary});
  }
  driver_call("cuCtxPopCurrent_v2", &primary);
}

// Setting what is current already costs a look; the control is another context.
TEST_F(GuardedThreadTest, SettingTheCurrentContextAgainMakesNoDriverCall) {
  const SoftwareControls controls(broker.driver().path);
  if (!controls) GTEST_SKIP() << "only the software device counts its calls";
  for (Tenant& tenant : tenants) {
    const Guard guard(tenant);
    const CUcontext inside = current();
    ASSERT_EQ(driver_call("cuCtxSetCurrent", primary), CUDA_SUCCESS);
    controls.start_counting();
    EXPECT_EQ(driver_call("cuCtxSetCurrent", primary), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxSetCurrent", inside), CUDA_SUCCESS);
    EXPECT_EQ(controls.call_count("cuCtxSetCurrent"), 0U);
    EXPECT_EQ(driver_call("cuCtxSetCurrent", CUcontext{nullptr}), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuCtxSetCurrent", primary), CUDA_SUCCESS);
    EXPECT_EQ(controls.call_count("cuCtxSetCurrent"), 2U);
    controls.stop_counting();
    EXPECT_EQ(current(), inside);
  }
}

// A guard inside another one of the same life is left out; one in the next life is not.
TEST_F(GuardedThreadTest, ANestedGuardFollowsALoss) {
  for (const std::size_t renewable : {1, 2}) {
    Tenant& tenant = tenants[renewable];
    const Guard outer(tenant);
    const CUcontext lost = current();
    ASSERT_TRUE(broker.force_loss(tenant.id(), 0, "a test"));
    {
      const Guard nested(tenant);
      EXPECT_NE(current(), lost);
      EXPECT_EQ(current(), tenant.lease().context);
      const Guard third(tenant);
      EXPECT_EQ(current(), tenant.lease().context);
    }
    EXPECT_EQ(current(), lost);
  }
  EXPECT_EQ(current(), nullptr);
}

// The next tenant may have the address of the one before.
TEST_F(GuardedThreadTest, GuardEntersTheTenantAndNotAnEarlierOne) {
  for (int i = 0; i < 6; ++i) {
    Tenant tenant = broker.open_tenant(
        "next", {LeaseChoice(i % 2 == 0 ? LeaseKind::private_own : LeaseKind::shared)});
    for (int use = 0; use < 3; ++use) {
      const Guard guard(tenant);
      EXPECT_EQ(current(), tenant.lease().context);
      const Guard nested(tenant);
      EXPECT_EQ(current(), tenant.lease().context);
    }
    tenant.close();
    EXPECT_THROW(const Guard closed(tenant), Error);
    EXPECT_EQ(current(), nullptr);
  }
  // With nothing made in between, so that the allocator gives the same place again.
  std::array<Tenant, 2> closed{broker.open_tenant("one", {LeaseChoice(LeaseKind::private_own)}),
                               broker.open_tenant("two", {LeaseChoice(LeaseKind::private_own)})};
  for (Tenant& one : closed) {
    for (int use = 0; use < 2; ++use) const Guard guard(one);
    one.close();
    const Tenant other = broker.open_tenant("other", {LeaseChoice(LeaseKind::shared)});
    Tenant next = broker.open_tenant("next", {LeaseChoice(LeaseKind::shared)});
    const Guard guard(next);
    EXPECT_EQ(current(), next.lease().context);
  }
}

TEST_F(GuardedThreadTest, AnotherTenantsEndLeavesAGuardAlone) {
  for (Tenant& tenant : tenants) {
    const Guard outer(tenant);
    const CUcontext inside = current();
    broker.open_tenant("short", {LeaseChoice(LeaseKind::private_own)}).lease();  // and ends at once
    for (int use = 0; use < 3; ++use) {
      const Guard nested(tenant);
      EXPECT_EQ(current(), inside);
    }
    Tenant& other = &tenant == &tenants[0] ? tenants[1] : tenants[0];
    const Guard elsewhere(other);
    EXPECT_EQ(current(), other.lease().context);
  }
  EXPECT_EQ(current(), nullptr);
}

TEST_F(GuardedThreadTest, GuardFollowsAMovedTenant) {
  Tenant moved = std::move(tenants[0]);
  EXPECT_THROW(const Guard guard(tenants[0]), Error);  // NOLINT(bugprone-use-after-move): refused
  {
    const Guard guard(moved);
    EXPECT_EQ(current(), moved.lease().context);
  }
  tenants[0] = std::move(moved);
}

TEST_F(GuardedThreadTest, EachGuardIsInTheTimelineByItsName) {
  const auto times = [](const std::string& text, const std::string& name) {
    std::size_t count = 0;
    for (auto at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) ++count;
    return count;
  };
  for (Tenant& tenant : tenants) {
    for (int use = 0; use < 3; ++use) const Guard guard(tenant, 0, "before");
    broker.start_timeline();
    {
      const Guard guard(tenant, 0, "render");
      const Guard nested(tenant, 0, "tile");
    }
    { const Guard guard(tenant, 0, "encode"); }
    { const Guard guard(tenant, 0, nullptr); }
    broker.stop_timeline();
    std::string text;
    broker.write_timeline([&](std::string_view piece) { text += piece; });
    for (const char* name : {"guard render", "guard encode", "guard guard"}) {
      EXPECT_EQ(times(text, std::string("\"") + name + '"'), 1u) << name << text;
    }
    EXPECT_EQ(times(text, "guard before"), 0u);
    { const Guard guard(tenant, 0, "after"); }
  }
}

TEST_F(GuardedThreadTest, LibraryMayPopUntilNothingIsCurrent) {
  driver_call("cuCtxPushCurrent_v2", own);
  for (int round = 0; round < 3; ++round) {
    const Guard guard(library_owner);
    disturb("pop_too_much");
    EXPECT_EQ(current(), nullptr);
  }
  EXPECT_EQ(stack(), Stack{own});
  EXPECT_EQ(library_owner.strikes(), 0u);
  driver_call("cuCtxPopCurrent_v2", &own);
}

// Its lease stays; AddressSanitizer sees whether it does.
TEST_F(GuardedThreadTest, AGuardMayOutliveItsTenant) {
  for (int known = 0; known < 2; ++known) {
    auto tenant = std::make_unique<Tenant>(
        broker.open_tenant("short", {LeaseChoice(LeaseKind::private_own)}));
    for (int use = 0; use < known; ++use) const Guard first(*tenant);
    {
      const Guard last(*tenant);
      const CUcontext inside = current();
      tenant.reset();
      EXPECT_EQ(current(), inside);
    }
    EXPECT_EQ(current(), nullptr);
  }
}

TEST_F(GuardedThreadTest, HostsCaptureModeIsRestoredAfterAGuard) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  { const Guard first(tenants[0]); }
  ASSERT_EQ(driver_call("cuThreadExchangeStreamCaptureMode", &mode), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) {
    const Guard guard(tenants[0]);
    mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    driver_call("cuThreadExchangeStreamCaptureMode", &mode);
    EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL) << "as every thread begins";
  }
  mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  driver_call("cuThreadExchangeStreamCaptureMode", &mode);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

}  // namespace
}  // namespace ctxbroker
