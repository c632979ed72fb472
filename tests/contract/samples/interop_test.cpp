// SPDX-License-Identifier: Apache-2.0
// What the driver made used by NVIDIA's libraries, and back, in one lease of each kind. The checks
// are in the plug-in; they need a GPU, and without one each test says so and is skipped.
#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

// The plug-in's choices, in their order.
constexpr const char* checks[] = {"fft",    "blas",   "pointers", "symbol",
                                  "kernel", "stream", "arrays"};
constexpr std::size_t check_count = std::size(checks);

class Interop : public testing::TestWithParam<std::tuple<LeaseKind, std::size_t>> {};

TEST_P(Interop, InteroperationCheckPassesInALease) {
  const auto [kind, check] = GetParam();
  SampleRunner runner;
  if (runner.broker().driver().kind != DriverChoice::nvidia) GTEST_SKIP() << "needs a GPU";
  if (!exists(plugin_file("interop"))) {
    GTEST_SKIP() << "interop is not built: the CUDA Toolkit lacks a library";
  }
  PluginInstance instance =
      runner.create({"interop", {{"check", static_cast<double>(check)}}}, kind);
  ASSERT_EQ(instance.lease().granted.kind, kind);
  EXPECT_NO_THROW(instance.activate({16, 1, 48000}));
  instance.deactivate();
  EXPECT_EQ(instance.metrics().strikes, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, Interop,
                         testing::Combine(testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                                          LeaseKind::green),
                                          testing::Range(std::size_t{0}, check_count)),
                         [](const auto& one) {
                           return std::string(checks[std::get<1>(one.param)]) + "_" +
                                  to_string(std::get<0>(one.param));
                         });

}  // namespace
}  // namespace ctxbroker::test
