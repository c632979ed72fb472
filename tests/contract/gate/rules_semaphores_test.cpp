// SPDX-License-Identifier: Apache-2.0
// Semaphores of another API, in streams of a tenant. Needs NVIDIA's driver and Vulkan.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "rules_fixture.hpp"
#include "vulkan_semaphore.hpp"

namespace ctxbroker {
namespace {

class SemaphoresTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  void SetUp() override {
    if (SoftwareControls(broker.driver().path))
      GTEST_SKIP() << "the software device has no semaphores of other APIs";
    const char* why_not = nullptr;
    semaphore = VulkanSemaphore::make(&why_not);
    if (semaphore == nullptr) GTEST_SKIP() << why_not;
  }
  // Imported by the tenant, whose guard stands.
  CUexternalSemaphore import() const {
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC description{};
    description.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
    description.handle.fd = semaphore->descriptor();
    CUexternalSemaphore imported = nullptr;
    EXPECT_EQ(driver_call("cuImportExternalSemaphore", &imported, &description), CUDA_SUCCESS);
    return imported;
  }
  static CUstream make_stream() {
    CUstream stream = nullptr;
    EXPECT_EQ(driver_call("cuStreamCreate", &stream, unsigned(CU_STREAM_NON_BLOCKING)),
              CUDA_SUCCESS);
    return stream;
  }
  static void CUDA_CB hold(void* may_go_on) {
    while (!*static_cast<std::atomic<bool>*>(may_go_on)) std::this_thread::yield();
  }
  std::unique_ptr<VulkanSemaphore> semaphore;
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, SemaphoresTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

TEST_P(SemaphoresTest, StreamThatWaitsGoesOnWhenAnotherOneHasSignalled) {
  Tenant tenant = open(broker, "semaphores", GetParam());
  std::atomic<bool> may_go_on{false};
  tenant.run(0, [&] {
    CUexternalSemaphore const imported = import();
    ASSERT_NE(imported, nullptr);
    CUstream const signals = make_stream(), waits = make_stream();
    const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait{};
    EXPECT_EQ(
        driver_call("cuLaunchHostFunc", signals, CUhostFn(&hold), static_cast<void*>(&may_go_on)),
        CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuSignalExternalSemaphoresAsync", &imported, &signal, 1U, signals),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuWaitExternalSemaphoresAsync", &imported, &wait, 1U, waits),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamQuery", waits), CUDA_ERROR_NOT_READY);
    may_go_on = true;
    EXPECT_EQ(driver_call("cuStreamSynchronize", waits), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamSynchronize", signals), CUDA_SUCCESS);
    if (GetParam() == LeaseKind::green) {
      EXPECT_EQ(raw.call("cuSignalExternalSemaphoresAsync", &imported, &signal, 1U, signals),
                CUDA_ERROR_INVALID_HANDLE)
          << "the driver's own answer, as a control";
    }
    EXPECT_EQ(driver_call("cuDestroyExternalSemaphore", imported), CUDA_SUCCESS);
    for (CUstream one : {signals, waits})
      EXPECT_EQ(driver_call("cuStreamDestroy_v2", one), CUDA_SUCCESS);
  });
  EXPECT_EQ(tenant.strikes(), 0U);
}

}  // namespace
}  // namespace ctxbroker
