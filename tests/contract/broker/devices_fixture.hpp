// SPDX-License-Identifier: Apache-2.0
// Tests on two devices, for each pair of lease kinds. Skipped where the driver has one device only.
#pragma once

#include <cuda.h>
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>

#include "broker_fixture.hpp"
#include "support/kernels.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {

using Kinds = std::tuple<LeaseKind, LeaseKind>;

class DevicesTest : public BrokerTest, public ::testing::WithParamInterface<Kinds> {
 protected:
  DevicesTest() : driver(broker.driver().path) {}
  void SetUp() override {
    if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices; the driver has one";
  }
  PluginInstance on(int device, const char* library, LeaseKind kind) {
    PluginInstance instance = broker.create(broker.load(test_plugin(library)), "affine",
                                            {Placement(device), LeaseChoice(kind), 0});
    instance.activate(test_sizes);
    return instance;
  }
  // A kernel that writes words, in the current context.
  void load_store(CUfunction* kernel) const {
    CUmodule module = nullptr;
    const auto* const text = static_cast<const void*>(fill_ptx);
    ASSERT_EQ(driver.call("cuModuleLoadData", &module, text), CUDA_SUCCESS);
    ASSERT_EQ(driver.call("cuModuleGetFunction", kernel, module, "fill"), CUDA_SUCCESS);
  }
  void launch_store(CUfunction kernel, CUdeviceptr to, std::uint32_t word) const {
    std::uint32_t count = 1;
    void* arguments[] = {&to, &word, &count};
    constexpr CUstream stream = nullptr;
    constexpr void** extra = nullptr;
    ASSERT_EQ(driver.call("cuLaunchKernel", kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream,
                          &arguments[0], extra),
              CUDA_SUCCESS);
  }
  void store(CUdeviceptr to, std::uint32_t word) const {
    CUfunction kernel = nullptr;
    load_store(&kernel);
    launch_store(kernel, to, word);
  }
  // Enqueues a write to come a fifth of a second from now.
  void store_late(CUdeviceptr to) const {
    CUfunction kernel = nullptr;
    load_store(&kernel);
    const auto sleep = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); };
    ASSERT_EQ(driver.launch_host_function(nullptr, sleep, nullptr), CUDA_SUCCESS);
    launch_store(kernel, to, 7);
  }
  RawDriver driver;
};

inline const auto lease_kinds =
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green);

inline std::string kinds_name(const ::testing::TestParamInfo<Kinds>& test) {
  return std::string(to_string(std::get<0>(test.param))) + "_then_" +
         to_string(std::get<1>(test.param));
}

}  // namespace ctxbroker
