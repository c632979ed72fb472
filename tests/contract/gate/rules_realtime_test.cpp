// SPDX-License-Identifier: Apache-2.0
// Real-time sessions: which calls hold up a tenant's neighbours, and what a policy does about them.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ctxbroker/error.hpp"
#include "rules_fixture.hpp"
#include "support/kernels.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A call that makes a thing and a call that destroys it, or a call that waits.
struct HoldUp {
  const char* make;           // as the metrics name it
  const char* end;            // null: the first call is a wait
  std::set<LeaseKind> kinds;  // of the leases in which neighbours wait for it
  // Makes both calls, and returns their statuses.
  std::function<std::pair<CUresult, CUresult>()> call;
};

// Calls `end` if `made` is CUDA_SUCCESS, and returns both statuses.
template <typename End>
std::pair<CUresult, CUresult> both(CUresult made, End&& end) {
  return {made, made == CUDA_SUCCESS ? end() : CUDA_SUCCESS};
}

std::vector<HoldUp> hold_ups() {
  const std::set<LeaseKind> all{LeaseKind::shared, LeaseKind::green, LeaseKind::private_own};
  const std::set<LeaseKind> with_memory{LeaseKind::shared, LeaseKind::green};
  return {{"cuMemAlloc", "cuMemFree", with_memory,
           [] {
             CUdeviceptr address = 0;
             return both(driver_call("cuMemAlloc_v2", &address, mib),
                         [&] { return driver_call("cuMemFree_v2", address); });
           }},
          {"cuMemHostAlloc", "cuMemFreeHost", all,
           [] {
             void* pinned = nullptr;
             return both(driver_call("cuMemHostAlloc", &pinned, mib, 0U),
                         [&] { return driver_call("cuMemFreeHost", pinned); });
           }},
          {"cuMemHostRegister", "cuMemHostUnregister", all,
           [] {
             void* const pages = std::aligned_alloc(4096, mib);
             const auto statuses = both(driver_call("cuMemHostRegister_v2", pages, mib, 0U),
                                        [&] { return driver_call("cuMemHostUnregister", pages); });
             std::free(pages);
             return statuses;
           }},
          {"cuModuleLoadData", "cuModuleUnload", with_memory,
           [] {
             CUmodule module = nullptr;
             return both(
                 driver_call("cuModuleLoadData", &module, static_cast<const void*>(empty_ptx)),
                 [&] { return driver_call("cuModuleUnload", module); });
           }},
          {"cuCtxCreate", "cuCtxDestroy", all,
           [] {
             CUcontext context = nullptr;
             return both(driver_call("cuCtxCreate_v2", &context, 0U, CUdevice{0}),
                         [&] { return driver_call("cuCtxDestroy_v2", context); });
           }},
          {"cuCtxSynchronize", nullptr, {LeaseKind::shared}, [] {
             return std::pair(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
           }}};
}

class RealtimeRulesTest : public RulesTest {
 protected:
  // The calls for memory that hold up neighbours are those for the driver's own.
  static Tenant open(Broker& broker, const char* name, LeaseKind kind) {
    TenantOptions options{LeaseChoice(kind)};
    options.memory = MemorySource::driver;
    return broker.open_tenant(name, options);
  }
  std::size_t records() {
    const auto all = said();
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [](const auto& one) { return one.starts_with("realtime: "); }));
  }
  static TenantMetrics metrics_in(const Broker& of, const Tenant& tenant) {
    for (TenantMetrics& metrics : of.metrics().tenants) {
      if (metrics.id == tenant.id()) return metrics;
    }
    return {};
  }
  static void allocate(Tenant& tenant) {
    tenant.run(0, [] {
      CUdeviceptr address = 0;
      check_driver_call("cuMemAlloc_v2", &address, mib);
      check_driver_call("cuMemFree_v2", address);
    });
  }
};

class HoldUpsTest : public RealtimeRulesTest, public ::testing::WithParamInterface<LeaseKind> {};

TEST_P(HoldUpsTest, CallsThatHoldUpNeighboursAreCountedInASessionOnly) {
  Tenant tenant = open(broker, "calls", GetParam());
  const auto call_all = [&] {
    tenant.run(0, [] {
      for (const HoldUp& one : hold_ups()) {
        EXPECT_EQ(one.call(), std::pair(CUDA_SUCCESS, CUDA_SUCCESS)) << one.make;
      }
    });
  };
  call_all();
  EXPECT_TRUE(metrics_of(tenant).realtime.empty()) << "before a session";
  broker.begin_realtime();
  call_all();
  broker.end_realtime();
  call_all();
  auto calls = metrics_of(tenant).realtime;
  for (const HoldUp& one : hold_ups()) {
    const std::uint64_t expected = one.kinds.count(GetParam());
    for (const char* const name : {one.make, one.end}) {
      if (name == nullptr) continue;
      EXPECT_EQ(calls[name].count, expected) << name;
      EXPECT_EQ(calls[name].refused, 0U) << name;
      EXPECT_GE(calls[name].seconds, calls[name].longest_seconds) << name;
      EXPECT_EQ(calls[name].longest_seconds > 0, expected != 0) << name;
    }
  }
  EXPECT_THAT(to_json(broker.metrics()), HasSubstr("\"cuMemHostRegister\": {\n"));
}

TEST_P(HoldUpsTest, PolicyRefusesCallsThatMakeThingsButNotCallsThatEndThem) {
  BrokerOptions strict = options();
  strict.policy.by_id["strict"].realtime = RealtimePolicy::refuse;
  Broker second = Broker::open(std::move(strict));
  Tenant refused = open(second, "strict", GetParam());
  Tenant control = open(second, "control", GetParam());
  CUdeviceptr kept = 0;
  refused.run(0, [&] { check_driver_call("cuMemAlloc_v2", &kept, mib); });
  second.begin_realtime();
  for (const HoldUp& one : hold_ups()) {
    SCOPED_TRACE(one.make);
    const bool holds_up = one.kinds.count(GetParam()) != 0;
    control.run(0, [&] { EXPECT_EQ(one.call(), std::pair(CUDA_SUCCESS, CUDA_SUCCESS)); });
    refused.run(0, [&] {
      EXPECT_EQ(one.call().first, holds_up ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS);
    });
    EXPECT_EQ(metrics_in(second, refused).realtime[one.make].refused, holds_up ? 1U : 0U);
    EXPECT_EQ(metrics_in(second, refused).realtime[one.make].count, 0U);
    EXPECT_EQ(metrics_in(second, control).realtime[one.make].refused, 0U);
  }
  refused.run(0, [&] { EXPECT_EQ(driver_call("cuMemFree_v2", kept), CUDA_SUCCESS); });
  const std::uint64_t of_host = refused.allocate(mib);  // the host's own
  refused.release(of_host);
  second.end_realtime();
  EXPECT_THAT(said(), ::testing::Contains(HasSubstr("refused 1")));
  refused.run(0, [] {
    EXPECT_EQ(hold_ups().front().call(), std::pair(CUDA_SUCCESS, CUDA_SUCCESS)) << "afterwards";
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, HoldUpsTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::green,
                                           LeaseKind::private_own),
                         [](const auto& kind) {
                           return kind.param == LeaseKind::private_own
                                      ? std::string("own")
                                      : std::string(to_string(kind.param));
                         });

TEST_F(RealtimeRulesTest, SessionsNest) {
  Tenant tenant = open(broker, "nests", LeaseKind::shared);
  const auto count = [&] {
    allocate(tenant);
    return metrics_of(tenant).realtime["cuMemAlloc"].count;
  };
  EXPECT_EQ(count(), 0U);
  broker.begin_realtime();
  broker.begin_realtime();
  EXPECT_EQ(count(), 1U);
  broker.end_realtime();
  EXPECT_EQ(count(), 2U) << "the outer one is open";
  broker.end_realtime();
  EXPECT_EQ(count(), 2U);
  EXPECT_THROW(broker.end_realtime(), Error);
}

TEST_F(RealtimeRulesTest, SessionOfOneBrokerCountsForTheTenantsOfAll) {
  Tenant tenant = open(broker, "beside", LeaseKind::shared);
  {
    Broker second = Broker::open(options());
    second.begin_realtime();
    allocate(tenant);
  }
  allocate(tenant);
  EXPECT_EQ(metrics_of(tenant).realtime["cuMemAlloc"].count, 1U) << "it ended with its broker";
}

TEST_F(RealtimeRulesTest, OneRecordASecondNamesTheCalls) {
  using Clock = std::chrono::steady_clock;
  Tenant tenant = open(broker, "told", LeaseKind::shared);
  allocate(tenant);
  EXPECT_EQ(records(), 0U);
  broker.begin_realtime();
  const auto begin = Clock::now();
  for (int i = 0; i < 100; ++i) allocate(tenant);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begin).count();
  const std::size_t at_once = records();
  EXPECT_GE(at_once, 1U);
  EXPECT_LE(at_once, 1U + static_cast<std::size_t>(seconds));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  broker.poll();
  EXPECT_EQ(records(), at_once + 1) << "the calls since then";
  EXPECT_THAT(said().back(), HasSubstr("cuMemFree"));
  broker.poll();
  broker.end_realtime();
  EXPECT_EQ(records(), at_once + 1) << "nothing is new";
}

TEST_F(RealtimeRulesTest, EndOfASessionNamesTheOtherCalls) {
  Tenant tenant = open(broker, "told", LeaseKind::shared);
  static_cast<void>(tenant.lease());
  broker.begin_realtime();
  allocate(tenant);
  broker.end_realtime();
  EXPECT_GE(records(), 1U);
  EXPECT_THAT(said(), ::testing::Contains(HasSubstr("cuMemFree 1 (")));
}

TEST_F(RealtimeRulesTest, HostsOwnCallsAreCountedForTheTenant) {
  Tenant tenant = open(broker, "served", LeaseKind::shared);
  broker.begin_realtime();
  const std::uint64_t address = tenant.allocate(mib);
  tenant.release(address);
  broker.end_realtime();
  auto calls = metrics_of(tenant).realtime;
  EXPECT_EQ(calls["make lease"].count, 1U);
  EXPECT_EQ(calls["allocate"].count, 1U);
  EXPECT_EQ(calls["release"].count, 1U);
}

TEST_F(RealtimeRulesTest, TimelineShowsTheCalls) {
  Tenant tenant = open(broker, "shown", LeaseKind::shared);
  const auto trace = [&] {
    std::string text;
    broker.start_timeline();
    allocate(tenant);
    broker.write_timeline([&](std::string_view piece) { text += piece; });
    return text;
  };
  static_cast<void>(tenant.lease());
  EXPECT_THAT(trace(), Not(HasSubstr("\"realtime\"")));
  broker.begin_realtime();
  EXPECT_THAT(trace(), HasSubstr("\"realtime\""));
  broker.end_realtime();
}

}  // namespace
}  // namespace ctxbroker
