// SPDX-License-Identifier: Apache-2.0
// A tenant's kernel hangs, and its neighbour makes one call. Each test runs in a child, because a
// call that hangs would end the suite: hung_neighbour_test.cpp starts them.
#include <chrono>
#include <future>
#include <thread>

#include "hung_neighbour_fixture.hpp"

namespace ctxbroker {
namespace {

TEST_P(HungNeighbour, DISABLED_CallIsAnsweredInTime) {
  const Call call = std::get<2>(GetParam());
  EXPECT_TRUE(make(call) || end(call) || use(call)) << "a cell without a test";
  hung.let_go();
  hung.stop_watching();
  EXPECT_EQ(hung.synchronize(), CUDA_SUCCESS);
}

// The control: the host calls the driver itself, and nothing stands between.
TEST_P(HungNeighbour, DISABLED_DriverAloneWaitsForTheHungNeighbour) {
  CUcontext context = nullptr;
  innocent->run(0, [&] { EXPECT_EQ(driver_call("cuCtxGetCurrent", &context), CUDA_SUCCESS); });
  hang();
  auto freed = std::async(std::launch::async, [&] { return driver_call("cuMemFree_v2", own); });
  auto loaded = std::async(std::launch::async, [&] {
    CUmodule module = nullptr;
    EXPECT_EQ(driver_call("cuCtxPushCurrent_v2", context), CUDA_SUCCESS);
    const CUresult status =
        driver_call("cuModuleLoadData", &module, static_cast<const void*>(hold_ptx));
    EXPECT_EQ(driver_call("cuCtxPopCurrent_v2", &context), CUDA_SUCCESS);
    return status;
  });
  const auto waits = [&](std::future<CUresult>& call) {
    return call.wait_for(timeout + milliseconds(500)) == std::future_status::timeout;
  };
  EXPECT_EQ(waits(freed), in_one_family());
  EXPECT_EQ(waits(loaded), in_one_family());
  EXPECT_TRUE(hung.is_held());
  hung.let_go();
  EXPECT_EQ(freed.get(), CUDA_SUCCESS);
  EXPECT_EQ(loaded.get(), CUDA_SUCCESS);
  hung.stop_watching();
}

// A wait for the primary begins before anybody knows that something hangs there.
TEST_P(HungNeighbour, DISABLED_WaitThatHasBegunIsAnsweredWhenTheHangIsKnown) {
  hang();
  auto waited = std::async(std::launch::async, [&] {
    return innocent->run(0, [] { return driver_call("cuCtxSynchronize"); });
  });
  if (in_one_family()) {
    EXPECT_EQ(waited.wait_for(timeout + milliseconds(200)), std::future_status::timeout)
        << "it may be long work of its own";
  }
  guilty->close();
  EXPECT_EQ(waited.wait_for(timeout + margin), std::future_status::ready);
  EXPECT_TRUE(hung.is_held());
  EXPECT_EQ(waited.get(), in_one_family() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
  hung.let_go();
  expect_nothing_put_off();
  EXPECT_EQ(innocent->run(0, [] { return driver_call("cuCtxSynchronize"); }), CUDA_SUCCESS);
  hung.stop_watching();
}

// The objects of tenants that are closed may end after the broker.
TEST_P(HungNeighbour, DISABLED_HungWorkThatEndsBeforeTheBrokerIsGivenBack) {
  hang();
  guilty->close();
  innocent->close();
  hung.let_go();
  expect_nothing_put_off();
  broker.close();
  guilty.reset();
  innocent.reset();
  hung.stop_watching();
}

// What the guilty one frees itself has to wait for its own kernel.
TEST_P(HungNeighbour, DISABLED_GuiltyTenantIsAnsweredInTime) {
  CUdeviceptr guiltys = 0;
  guilty->run(0, [&] { EXPECT_EQ(driver_call("cuMemAlloc_v2", &guiltys, bytes), CUDA_SUCCESS); });
  guilty->run(0, [&] { hung.launch(kernel, stream, hung.held()); });
  expect_in_time([&] {
    EXPECT_EQ(guilty->run(0, [&] { return driver_call("cuMemFree_v2", guiltys); }), CUDA_SUCCESS);
  });
  EXPECT_EQ(bytes_put_off("guilty"), bytes);
  expect_in_time([&] { guilty->close(); });
  hung.let_go();
  expect_nothing_put_off();
  hung.stop_watching();
}

const auto cell_of = [](const auto& test) { return cell_name(test.param); };

INSTANTIATE_TEST_SUITE_P(Cells, HungNeighbour,
                         ::testing::Combine(::testing::ValuesIn(kinds), ::testing::ValuesIn(kinds),
                                            ::testing::ValuesIn(calls), ::testing::Bool()),
                         cell_of);

}  // namespace
}  // namespace ctxbroker
