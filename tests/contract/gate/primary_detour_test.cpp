// SPDX-License-Identifier: Apache-2.0
// Work of a tenant that the driver does not take in streams of a green context, such as the signals
// of semaphores of another API: it is done in a stream of the primary, in the order of the
// tenant's.
#include <atomic>
#include <string>
#include <thread>

#include "gate/primary_detour.hpp"
#include "plugin/access.hpp"
#include "plugin/tenant_impl.hpp"
#include "recording_broker.hpp"
#include "support/driver_by_name.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

class PrimaryDetourTest : public RecordingBrokerTest,
                          public ::testing::WithParamInterface<LeaseKind> {
 protected:
  const RawDriver raw{broker.driver().path};
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, PrimaryDetourTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

// Three functions, in this order: in the tenant's stream, in the other one, in the tenant's.
struct Order {
  std::atomic<bool> may_go_on{false};
  std::atomic<int> done{0};
  std::atomic<bool> is_wrong{false};

  void step(int number) {
    if (done.exchange(number) != number - 1) is_wrong = true;
  }
  static void CUDA_CB first(void* self) {
    auto& order = *static_cast<Order*>(self);
    while (!order.may_go_on) std::this_thread::yield();
    order.step(1);
  }
  static void CUDA_CB second(void* self) { static_cast<Order*>(self)->step(2); }
  static void CUDA_CB third(void* self) { static_cast<Order*>(self)->step(3); }
};

TEST_P(PrimaryDetourTest, WorkHasItsPlaceInTheTenantsStream) {
  Tenant tenant = broker.open_tenant("detour", {LeaseChoice(GetParam())});
  const detail::Lease& lease = detail::Access::of(tenant)->lease(0);
  for (const bool own_stream : {true, false}) {
    Order order;
    tenant.run(0, [&] {
      CUstream stream = nullptr;
      CUcontext there = nullptr;
      if (own_stream) {
        ASSERT_EQ(driver_call("cuStreamCreate", &stream, unsigned(CU_STREAM_NON_BLOCKING)),
                  CUDA_SUCCESS);
      }
      const auto call = [&](CUstream in, CUhostFn function) {
        return raw.launch_host_function(in, function, &order);
      };
      EXPECT_EQ(call(stream, &Order::first), CUDA_SUCCESS);
      const auto detour = [&](CUstream other) noexcept {
        try {
          raw.call("cuStreamGetCtx", other, &there);
          return call(other, &Order::second);
        } catch (...) {  // there is no such function
          return CUDA_ERROR_UNKNOWN;
        }
      };
      EXPECT_EQ(detail::call_in_primary(lease, stream, detour), CUDA_SUCCESS);
      EXPECT_EQ(call(stream, &Order::third), CUDA_SUCCESS);
      EXPECT_EQ(there, lease.memory_context()) << "where the driver takes the work";
      EXPECT_EQ(driver_call("cuStreamQuery", stream), CUDA_ERROR_NOT_READY);
      order.may_go_on = true;
      EXPECT_EQ(driver_call("cuStreamSynchronize", stream), CUDA_SUCCESS);
      if (own_stream) {
        EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
      }
    });
    EXPECT_EQ(order.done, 3);
    EXPECT_FALSE(order.is_wrong);
  }
  EXPECT_EQ(tenant.strikes(), 0U);
}

TEST_P(PrimaryDetourTest, ErrorOfTheWorkIsReturnedAndNothingIsLeft) {
  Tenant tenant = broker.open_tenant("detour", {LeaseChoice(GetParam())});
  const detail::Lease& lease = detail::Access::of(tenant)->lease(0);
  tenant.run(0, [&] {
    CUcontext const before = raw.current();
    const auto refuse = [](CUstream) { return CUDA_ERROR_NOT_SUPPORTED; };
    EXPECT_EQ(detail::call_in_primary(lease, nullptr, refuse), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(raw.current(), before);
    EXPECT_EQ(driver_call("cuStreamSynchronize", CUstream(nullptr)), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

}  // namespace
}  // namespace ctxbroker
