// SPDX-License-Identifier: Apache-2.0
// Modules beside a neighbour's long kernel. The driver loads and unloads a module only when all
// running kernels have ended, so the broker loads early, and unloads when nothing runs. The tests
// run in a child process, because what the kernel waits for stays until the exit.
#include <cuda.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "broker_fixture.hpp"
#include "support/child_process.hpp"
#include "support/hung_kernel.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {
namespace {

using ::testing::HasSubstr;

class LateUnloadChildTest : public BrokerTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  LateUnloadChildTest() : raw_(broker.driver().path) {
    BrokerOptions impatient = options();
    impatient.end_timeout = std::chrono::milliseconds(400);
    broker = Broker::open(std::move(impatient));
    raw_.init();
    kernel_.emplace([this](const char* symbol) { return raw_.find(symbol); });
    kernel_->let_go_after(std::chrono::seconds(30));
    neighbour_ = broker.open_tenant("neighbour", TenantOptions{LeaseChoice(GetParam())});
  }
  void TearDown() override { kernel_->let_go(); }

  // The neighbour's kernel runs from now on.
  void begin_long_kernel() {
    const CUstream stream = neighbour_->create_stream();
    neighbour_->run(0, [&] {
      const CUfunction hold = kernel_->load();
      kernel_->launch(hold, stream, kernel_->open());
      ASSERT_EQ(raw_.call("cuStreamSynchronize", stream), CUDA_SUCCESS);
      kernel_->launch(hold, stream, kernel_->held());
    });
  }
  void end_long_kernel() { kernel_->let_go(); }
  bool is_kernel_running() const { return kernel_->is_held(); }

  LeaseMetrics modules() const {
    for (const TenantMetrics& one : broker.metrics().tenants) {
      if (one.name == "behaviours" && !one.leases.empty()) return one.leases[0];
    }
    return {};
  }
  // Returns whether an unload waits for work that hangs or takes too long.
  bool is_an_unload_put_off() const {
    const std::vector<PutOffMetrics> all = broker.metrics().put_off;
    return std::any_of(all.begin(), all.end(),
                       [](const PutOffMetrics& one) { return one.what == "module"; });
  }
  template <typename Condition>
  static bool eventually(Condition&& holds) {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds() && std::chrono::steady_clock::now() < latest) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return holds();
  }

  float pixel_[4] = {0, 1, 2, 3};

 private:
  RawDriver raw_;
  std::optional<HungKernel> kernel_;
  std::optional<Tenant> neighbour_;
};

TEST_P(LateUnloadChildTest, DISABLED_UnloadWaitsForAnIdleMomentOutsideOfASession) {
  PluginInstance ended = active("affine", GetParam()), works = create("plain", GetParam());
  ActivationSizes sizes = test_sizes;
  sizes.realtime = true;
  works.activate(sizes);
  Graph graph(broker, {&works}, sizes);
  graph.process(pixel_, pixel_, {});
  ended.deactivate();
  begin_long_kernel();
  broker.begin_realtime();
  for (int i = 0; i < 20; ++i) {
    graph.process(pixel_, pixel_, {});
    broker.poll();
  }
  EXPECT_TRUE(is_kernel_running()) << "a job waited for the neighbour";
  EXPECT_EQ(modules().modules, 2U);
  EXPECT_EQ(modules().module_loads, 2U);
  broker.end_realtime();
  for (int i = 0; i < 20; ++i) broker.poll();
  EXPECT_TRUE(is_kernel_running()) << "a poll waited for the neighbour";
  EXPECT_EQ(modules().modules, 2U) << "the neighbour's kernel runs";
  EXPECT_FALSE(is_an_unload_put_off());
  broker.begin_realtime();
  end_long_kernel();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  broker.poll();
  EXPECT_EQ(modules().modules, 2U) << "a session is open";
  broker.end_realtime();
  EXPECT_TRUE(eventually([&] {
    broker.poll();
    return modules().modules == 1;
  }));
  EXPECT_EQ(modules().module_unloads, 1U);
}

// The control: an unload that does not wait for an idle moment waits for the neighbour.
TEST_P(LateUnloadChildTest, DISABLED_UnloadAtOnceWaitsForTheNeighbour) {
  PluginInstance ended = active("affine", GetParam());
  ended.deactivate();
  begin_long_kernel();
  EXPECT_FALSE(is_an_unload_put_off());
  EXPECT_EQ(broker.unload_idle_modules(0), 1U);
  EXPECT_TRUE(is_kernel_running());
  EXPECT_TRUE(is_an_unload_put_off()) << "it returned before end_timeout was over";
  EXPECT_EQ(modules().modules, 1U);
  end_long_kernel();
  EXPECT_TRUE(eventually([&] { return modules().modules == 0; })) << "no poll is needed";
}

TEST_P(LateUnloadChildTest, DISABLED_NextActivationUsesTheModuleThatWasKept) {
  PluginInstance instance = active("plain", GetParam()), other = create("affine", GetParam());
  Graph(broker, {&instance}, test_sizes).process(pixel_, pixel_, {});
  instance.deactivate();
  begin_long_kernel();
  instance.activate(test_sizes);
  Graph graph(broker, {&instance}, test_sizes);
  EXPECT_NO_THROW(graph.process(pixel_, pixel_, {}));
  EXPECT_TRUE(is_kernel_running());
  EXPECT_EQ(modules().module_loads, 1U);
  // The control: a module that is not loaded yet cannot be loaded now.
  EXPECT_THAT(error_text(ErrorKind::lease_unavailable, [&] { other.activate(test_sizes); }),
              HasSubstr("neighbour"));
  EXPECT_TRUE(is_kernel_running()) << "it returned in time";
  end_long_kernel();
}

INSTANTIATE_TEST_SUITE_P(Kinds, LateUnloadChildTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::green),
                         [](const auto& one) { return std::string(to_string(one.param)); });

using LateUnloadChild = std::tuple<const char*, const char*>;
class LateUnloadTest : public ::testing::TestWithParam<LateUnloadChild> {};
TEST_P(LateUnloadTest, ChildTestPasses) {
  const auto& [test, kind] = GetParam();
  const ChildResult child =
      run_child(std::string("Kinds/LateUnloadChildTest.DISABLED_") + test + "/" + kind,
                {{"LSAN_OPTIONS", "detect_leaks=0"}});
  EXPECT_EQ(child.exit_code, 0) << child.output;
  EXPECT_THAT(child.output, HasSubstr("[  PASSED  ] 1 test"));
}
INSTANTIATE_TEST_SUITE_P(
    Kinds, LateUnloadTest,
    ::testing::Combine(::testing::Values("UnloadWaitsForAnIdleMomentOutsideOfASession",
                                         "UnloadAtOnceWaitsForTheNeighbour",
                                         "NextActivationUsesTheModuleThatWasKept"),
                       ::testing::Values("shared", "green")),
    [](const auto& one) {
      return std::string(std::get<0>(one.param)) + "_" + std::get<1>(one.param);
    });

}  // namespace
}  // namespace ctxbroker
