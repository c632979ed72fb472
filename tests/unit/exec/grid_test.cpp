// SPDX-License-Identifier: Apache-2.0
// Launches whose blocks may wait for each other.
#include <cstdint>
#include <string_view>
#include <vector>

#include "support.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view grid_ptx;
extern const std::string_view grid_90_ptx;
}  // namespace ctxbroker::fixtures

namespace ctxbroker::software::exec::testing {
namespace {

template <class Check>
void each_grid_text(Check check) {
  for (const std::string_view ptx : {fixtures::grid_ptx, fixtures::grid_90_ptx}) {
    for (const unsigned pool : {1U, 3U}) {
      Device device(std::string(ptx), pool);
      auto* workspace = device.upload(std::vector<std::uint32_t>{16, 0, 0, 0});
      device.use_workspace(reinterpret_cast<std::uint64_t>(workspace));
      for (const Config& config : all_configs()) {
        SCOPED_TRACE(name_of(config));
        check(device, config);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(Grid, EachBlockSeesWhatTheOthersWrote) {
  each_grid_text([](Device& device, const Config& config) {
    for (const std::uint32_t threads : {1U, 33U, 200U}) {
      for (const std::uint32_t blocks : {1U, 2U, 17U}) {
        std::vector<int> expected(blocks), last(blocks);
        for (std::uint32_t i = 0; i < blocks; ++i) expected[i] = static_cast<int>(i * i);
        int* values = device.upload(expected);
        int* next = device.upload(last);
        const int rounds = 6;
        const Outcome outcome =
            device.launch(config, "rounds", {blocks}, {threads}, Arguments(values, next, rounds));
        ASSERT_EQ(outcome.fault, Fault::none) << outcome.message;
        for (int round = 0; round < rounds; ++round) {
          last.swap(expected);
          for (std::uint32_t i = 0; i < blocks; ++i) {
            expected[i] = last[(i + 1) % blocks] + last[(i + blocks - 1) % blocks] + round;
          }
        }
        EXPECT_EQ(std::vector<int>(values, values + blocks), expected);
      }
    }
  });
}

TEST(Grid, EachBlockHasSharedMemoryOfItsOwn) {
  each_grid_text([](Device& device, const Config& config) {
    constexpr int blocks = 5, threads = 70;
    int* out = device.upload(std::vector<int>(blocks * threads));
    ASSERT_EQ(device.launch(config, "shared_tile", {blocks}, {threads}, Arguments(out)).fault,
              Fault::none);
    for (int i = 0; i < blocks * threads; ++i) ASSERT_EQ(out[i], threads - 1 - i % threads) << i;
  });
}

TEST(Grid, AFaultOfOneBlockEndsAll) {
  each_grid_text([](Device& device, const Config& config) {
    int* values = device.upload(std::vector<int>(1));
    const Outcome outcome =
        device.launch(config, "rounds", {300}, {64}, Arguments(values, values, 1));
    EXPECT_EQ(outcome.fault, Fault::illegal_address) << outcome.message;
  });
}

// A launch that is not cooperative has no workspace, and cooperative_groups then traps instead of
// waiting without end.
TEST(Grid, GridBarrierWithoutAWorkspaceIsATrap) {
  Device device{std::string(fixtures::grid_ptx)};
  int* values = device.upload(std::vector<int>(2));
  const Outcome outcome = device.launch({}, "rounds", {2}, {64}, Arguments(values, values, 1));
  EXPECT_EQ(outcome.fault, Fault::trap) << outcome.message;
}

}  // namespace
}  // namespace ctxbroker::software::exec::testing
