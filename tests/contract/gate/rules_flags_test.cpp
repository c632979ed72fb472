// SPDX-License-Identifier: Apache-2.0
// Flags of a context: the tenant's own.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csetjmp>
#include <csignal>
#include <string>
#include <thread>

#include "rules_fixture.hpp"

namespace ctxbroker {
namespace {

class FlagsTest : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  void SetUp() override {
    if (raw.find("cuCtxSetFlags") == nullptr) GTEST_SKIP() << "the driver has no cuCtxSetFlags";
  }
  unsigned schedule() const {  // of what is current, as the caller sees it
    unsigned flags = ~0U;
    EXPECT_EQ(driver_call("cuCtxGetFlags", &flags), CUDA_SUCCESS);
    return flags & CU_CTX_SCHED_MASK;
  }
  unsigned real_schedule() const {
    unsigned flags = ~0U;
    EXPECT_EQ(raw.call("cuCtxGetFlags", &flags), CUDA_SUCCESS);
    return flags & CU_CTX_SCHED_MASK;
  }
  unsigned primary_schedule() const {
    unsigned flags = 0;
    int active = 0;
    EXPECT_EQ(raw.call("cuDevicePrimaryCtxGetState", 0, &flags, &active), CUDA_SUCCESS);
    return flags & CU_CTX_SCHED_MASK;
  }
};

TEST_P(FlagsTest, FlagsSetByATenantAreItsOwn) {
  const bool own_context = GetParam() == LeaseKind::private_own;
  Tenant tenant = open(broker, "flags", GetParam());
  Tenant neighbour = open(broker, "neighbour", GetParam());
  const unsigned before = neighbour.run(0, [&] { return real_schedule(); });
  const unsigned primary_before = primary_schedule();
  tenant.run(0, [&] {
    unsigned flags = 0;
    int active = 0;
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxSetFlags_v2", 0, unsigned(CU_CTX_SCHED_BLOCKING_SYNC)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuDevicePrimaryCtxGetState", 0, &flags, &active), CUDA_SUCCESS);
    EXPECT_EQ(flags, unsigned(CU_CTX_SCHED_BLOCKING_SYNC));
    EXPECT_EQ(schedule(), unsigned(CU_CTX_SCHED_BLOCKING_SYNC));
    EXPECT_EQ(driver_call("cuCtxSetFlags", unsigned(CU_CTX_SCHED_YIELD)), CUDA_SUCCESS);
    EXPECT_EQ(schedule(), unsigned(CU_CTX_SCHED_YIELD));
    EXPECT_EQ(real_schedule(), own_context ? unsigned(CU_CTX_SCHED_YIELD) : before);
    EXPECT_EQ(driver_call("cuCtxSetFlags", 3U), CUDA_ERROR_INVALID_VALUE);
    if (!own_context) {
      EXPECT_EQ(driver_call("cuCtxSetFlags", unsigned(CU_CTX_SYNC_MEMOPS)),
                CUDA_ERROR_NOT_SUPPORTED);
    }
    EXPECT_EQ(schedule(), unsigned(CU_CTX_SCHED_YIELD));
  });
  EXPECT_EQ(neighbour.run(0, [&] { return schedule(); }), before);
  EXPECT_EQ(neighbour.run(0, [&] { return real_schedule(); }), before);
  EXPECT_EQ(primary_schedule(), primary_before);
}

// Without the gate they are the neighbour's too.
TEST_P(FlagsTest, FlagsSetWithoutTheGateReachTheNeighbour) {
  if (GetParam() == LeaseKind::private_own)
    GTEST_SKIP() << "a private context has flags of its own";
  Tenant tenant = open(broker, "flags", GetParam());
  Tenant neighbour = open(broker, "neighbour", LeaseKind::shared);
  const unsigned before = neighbour.run(0, [&] { return real_schedule(); });
  tenant.run(0, [&] { raw.call("cuCtxSetFlags", unsigned(CU_CTX_SCHED_YIELD)); });
  EXPECT_EQ(neighbour.run(0, [&] { return real_schedule(); }), unsigned(CU_CTX_SCHED_YIELD));
  tenant.run(0, [&] { raw.call("cuCtxSetFlags", before); });
}

// Code that catches the signal goes on, and so do others that ask.
sigjmp_buf after_bad_address;
void leave_bad_address(int) {
  siglongjmp(after_bad_address, 1);  // NOLINT(cert-err52-cpp): over frames that own nothing
}

TEST_P(FlagsTest, BadAddressForTheStateOfThePrimaryLeavesNoLockBehind) {
  Tenant tenant = open(broker, "careless", GetParam());
  void* const page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto* const bad_flags = static_cast<unsigned*>(page);
  auto* const bad_active = static_cast<int*>(page);
  unsigned* const no_flags = nullptr;
  int* const no_active = nullptr;
  struct sigaction handler {
  }, before{};
  handler.sa_handler = leave_bad_address;
  sigaction(SIGSEGV, &handler, &before);
  ::alarm(30);  // ends the process if a lock is held
  const auto ask = [&](unsigned* flags, int* active) {
    return driver_call("cuDevicePrimaryCtxGetState", 0, flags, active);
  };
  tenant.run(0, [&] {
    unsigned flags = 0;
    int active = 0;
    EXPECT_EQ(ask(no_flags, &active), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(ask(&flags, no_active), CUDA_ERROR_INVALID_VALUE);
    volatile int signals = 0;
    if (sigsetjmp(after_bad_address, 1) != 0) {
      signals = signals + 1;
    } else {
      ask(bad_flags, &active);
    }
    if (sigsetjmp(after_bad_address, 1) != 0) {
      signals = signals + 1;
    } else {
      ask(&flags, bad_active);
    }
    EXPECT_EQ(signals, 2);
  });
  sigaction(SIGSEGV, &before, nullptr);
  munmap(page, 4096);
  std::thread([&] {
    tenant.run(0, [&] {
      unsigned flags = 0;
      int active = 0;
      EXPECT_EQ(ask(&flags, &active), CUDA_SUCCESS);
    });
  }).join();
  ::alarm(0);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, FlagsTest,
    ::testing::Values(LeaseKind::shared, LeaseKind::green, LeaseKind::private_own),
    [](const auto& one) {
      return std::string(one.param == LeaseKind::private_own ? "private" : to_string(one.param));
    });

}  // namespace
}  // namespace ctxbroker
