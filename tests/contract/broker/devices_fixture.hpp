// SPDX-License-Identifier: Apache-2.0
// Tests on two devices, for each pair of lease kinds. Skipped where the driver has one device only.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <thread>
#include <tuple>

#include "broker_fixture.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {

using Kinds = std::tuple<LeaseKind, LeaseKind>;

class DevicesTest : public BrokerTest, public ::testing::WithParamInterface<Kinds> {
 protected:
  DevicesTest() : path(broker.driver().path), driver(path) {}
  void SetUp() override {
    if (broker.devices().size() < 2) GTEST_SKIP() << "needs two devices; the driver has one";
  }
  PluginInstance on(int device, const char* library, LeaseKind kind) {
    PluginInstance instance = broker.create(broker.load(test_plugin(library)), "affine",
                                            {Placement(device), LeaseChoice(kind), 0});
    instance.activate(test_sizes);
    return instance;
  }
  template <typename... Arguments>
  CUresult call(const char* symbol, Arguments... arguments) const {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    auto* const function = reinterpret_cast<CUresult (*)(Arguments...)>(dlsym(library, symbol));
    return function == nullptr ? CUDA_ERROR_NOT_FOUND : function(arguments...);
  }
  // A kernel that writes one word, in the current context.
  void load_store(CUfunction* kernel) const {
    static constexpr char text[] =
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        ".visible .entry store(.param .u64 to, .param .u32 word) {\n"
        "  .reg .b64 %rd<2>;\n  .reg .b32 %r<2>;\n"
        "  ld.param.u64 %rd1, [to];\n  ld.param.u32 %r1, [word];\n"
        "  st.global.u32 [%rd1], %r1;\n  ret;\n}\n";
    CUmodule module = nullptr;
    ASSERT_EQ(call("cuModuleLoadData", &module, static_cast<const void*>(text)), CUDA_SUCCESS);
    ASSERT_EQ(call("cuModuleGetFunction", kernel, module, "store"), CUDA_SUCCESS);
  }
  void launch_store(CUfunction kernel, CUdeviceptr to, std::uint32_t word) const {
    void* arguments[] = {&to, &word};
    constexpr CUstream stream = nullptr;
    constexpr void** extra = nullptr;
    ASSERT_EQ(
        call("cuLaunchKernel", kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream, &arguments[0], extra),
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
  const std::string path;  // of the driver's library; the broker may be closed
  RawDriver driver;
};

inline const auto lease_kinds =
    ::testing::Values(LeaseKind::shared, LeaseKind::private_own, LeaseKind::green);

inline std::string kinds_name(const ::testing::TestParamInfo<Kinds>& test) {
  return std::string(to_string(std::get<0>(test.param))) + "_then_" +
         to_string(std::get<1>(test.param));
}

}  // namespace ctxbroker
