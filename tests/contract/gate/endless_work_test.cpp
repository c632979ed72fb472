// SPDX-License-Identifier: Apache-2.0
// Work of a tenant's own code that does not end, in streams that the broker did not make: its close
// waits for it no longer than it is told to, and what it holds stays. In a child, with a driver
// that nobody has troubled.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "support/child_process.hpp"
#include "support/driver_by_name.hpp"
#include "support/hung_kernel.hpp"

namespace ctxbroker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EndlessWork
    : public ::testing::TestWithParam<std::tuple<LeaseKind, bool /* in a stream of its own */>> {
 protected:
  EndlessWork() : broker(Broker::open(options())) {}

  BrokerOptions options() {
    BrokerOptions impatient;
    impatient.records = [this](const Record& record) {
      if (record.topic == std::string("ledger")) said.push_back(record.text);
    };
    impatient.end_timeout = std::chrono::milliseconds(150);
    return impatient;
  }
  void SetUp() override { hung.let_go_after(std::chrono::seconds(20)); }
  // As a plug-in does it: what it takes, and a kernel that ends when `flag` is no longer 0.
  void work(std::uint32_t* flag) {
    if (kernel == nullptr) {
      CUdeviceptr memory = 0;
      ASSERT_EQ(driver_call("cuMemAlloc_v2", &memory, std::size_t{4096}), CUDA_SUCCESS);
      kernel = hung.load();
      if (std::get<1>(GetParam())) {
        ASSERT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
      }
    }
    hung.launch(kernel, stream, flag);
  }

  std::vector<std::string> said;  // of the ledger
  Broker broker;
  CUfunction kernel = nullptr;
  CUstream stream = nullptr;
  HungKernel hung;
};

TEST_P(EndlessWork, DISABLED_TenantCloseIsNotHeldUpByEndlessWork) {
  const LeaseKind kind = std::get<0>(GetParam());
  Tenant tenant = broker.open_tenant("hangs", {LeaseChoice(kind)}),
         other = broker.open_tenant("other", {LeaseChoice(kind)});
  const TenantId id = tenant.id();
  other.lease();
  {
    // In a green lease the other thread has a context of its own beside this one.
    const Guard here(tenant);
    std::jthread([&] {
      tenant.run(0, [&] {
        work(hung.open());
        driver_call("cuCtxSynchronize");
        work(hung.held());
      });
    }).join();
  }
  tenant.close();
  EXPECT_TRUE(hung.is_held()) << "it waited for the end";
  for (const LeaseInfo& lease : broker.leases()) {
    EXPECT_EQ(lease.state, lease.tenant == id ? LeaseState::hung : LeaseState::ready);
  }
  EXPECT_EQ(broker.leases().size(), 2U);
  EXPECT_THAT(said, ::testing::ElementsAre(AllOf(HasSubstr("put off until work that hangs ends"),
                                                 HasSubstr("1 x device memory"))))
      << "and nothing of it was given back";
  EXPECT_FALSE(broker.metrics().put_off.empty());
  // Others go on, if they need not wait for the device.
  other.run(0, [&] {
    CUstream theirs = nullptr;
    EXPECT_EQ(driver_call("cuStreamCreate", &theirs, 1U), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamSynchronize", theirs), CUDA_SUCCESS);
  });
  EXPECT_TRUE(hung.is_held());
  hung.let_go();
  hung.stop_watching();
  EXPECT_EQ(hung.synchronize(), CUDA_SUCCESS);
  for (int i = 0; i < 10000 && !broker.metrics().put_off.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(broker.metrics().put_off.empty()) << "it is given back when the work has ended";
}

std::string case_name(LeaseKind kind, bool own_stream) {
  return std::string(to_string(kind)) + (own_stream ? "_own_stream" : "_default_stream");
}

// In a shared lease the default stream is everybody's.
constexpr std::tuple<LeaseKind, bool> cases[] = {{LeaseKind::shared, true},
                                                 {LeaseKind::private_own, true},
                                                 {LeaseKind::private_own, false},
                                                 {LeaseKind::green, true},
                                                 {LeaseKind::green, false}};

INSTANTIATE_TEST_SUITE_P(Cases, EndlessWork, ::testing::ValuesIn(cases), [](const auto& test) {
  return case_name(std::get<0>(test.param), std::get<1>(test.param));
});

class EndlessWorkTest : public ::testing::TestWithParam<std::tuple<LeaseKind, bool>> {};

TEST_P(EndlessWorkTest, TenantCloseIsNotHeldUpByEndlessWork) {
  const auto [kind, own_stream] = GetParam();
  const ChildResult child =
      run_child("Cases/EndlessWork.DISABLED_TenantCloseIsNotHeldUpByEndlessWork/" +
                    case_name(kind, own_stream),
                {{"LSAN_OPTIONS", "detect_leaks=0"}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}

INSTANTIATE_TEST_SUITE_P(Cases, EndlessWorkTest, ::testing::ValuesIn(cases), [](const auto& test) {
  return case_name(std::get<0>(test.param), std::get<1>(test.param));
});

}  // namespace
}  // namespace ctxbroker
