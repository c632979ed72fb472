// SPDX-License-Identifier: Apache-2.0
// The default stream of a tenant. Alone in a process, foreign code finds one default stream on all
// its threads, and relies on its order: memory that one thread frees into a pool, another one
// takes.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>

#include "ctxbroker/broker.hpp"
#include "support/driver_by_name.hpp"
#include "support/hung_kernel.hpp"

namespace ctxbroker {
namespace {

class DefaultStreamTest : public ::testing::TestWithParam<LeaseKind> {
 protected:
  DefaultStreamTest()
      : broker(Broker::open()),
        tenant(broker.open_tenant("two threads", {LeaseChoice(GetParam())})) {}

  // In a guard: runs `here` behind a kernel that is held in the default stream, and meanwhile
  // `there` in a guard on another thread, whose driver call may wait for the kernel.
  template <typename Here, typename There>
  void play(Here&& here, There&& there) {
    const Guard guard(tenant);
    HungKernel held;
    const CUfunction hold = held.load();
    held.launch(hold, nullptr, held.open());  // a driver may load the code at the first launch
    ASSERT_EQ(driver_call("cuStreamSynchronize", CUstream{nullptr}), CUDA_SUCCESS);
    held.let_go_after(std::chrono::seconds(20));
    held.launch(hold, nullptr, held.held());
    here();
    auto other = std::async(std::launch::async, [&] { tenant.run(0, there); });
    other.wait_for(std::chrono::milliseconds(200));
    held.let_go();
    other.get();
    EXPECT_EQ(driver_call("cuStreamSynchronize", CUstream{nullptr}), CUDA_SUCCESS);
    held.stop_watching();
  }

  Broker broker;
  Tenant tenant;
};

TEST_P(DefaultStreamTest, WorkOfOneThreadIsPendingForAnother) {
  CUresult status = CUDA_ERROR_UNKNOWN;
  play([] {}, [&] { status = driver_call("cuStreamQuery", CUstream{nullptr}); });
  EXPECT_EQ(status, CUDA_ERROR_NOT_READY);
}

TEST_P(DefaultStreamTest, CopyOfOneThreadComesAfterTheMemsetOfAnother) {
  CUdeviceptr memory = 0;
  unsigned seen = 0;
  tenant.run(0, [&] {
    ASSERT_EQ(driver_call("cuMemAlloc_v2", &memory, std::size_t{4}), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuMemsetD32_v2", memory, 1U, std::size_t{1}), CUDA_SUCCESS);
    ASSERT_EQ(driver_call("cuCtxSynchronize"), CUDA_SUCCESS);
  });
  play([&] { driver_call("cuMemsetD32Async", memory, 7U, std::size_t{1}, CUstream{nullptr}); },
       [&] { driver_call("cuMemcpyDtoH_v2", static_cast<void*>(&seen), memory, std::size_t{4}); });
  EXPECT_EQ(seen, 7U);
  tenant.run(0, [&] { EXPECT_EQ(driver_call("cuMemFree_v2", memory), CUDA_SUCCESS); });
}

INSTANTIATE_TEST_SUITE_P(Leases, DefaultStreamTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& one) {
                           const std::string name = to_string(one.param);
                           return name == "private" ? "private_own" : name;
                         });

}  // namespace
}  // namespace ctxbroker
