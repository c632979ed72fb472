// SPDX-License-Identifier: Apache-2.0
// Tests of modules: plug-ins whose images come from files that the test writes.
#pragma once

#include <cuda.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "broker_fixture.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {

inline std::filesystem::path file() {
  return std::filesystem::temp_directory_path() /
         ("ctxb_module_test_" + std::to_string(getpid()) + ".ptx");
}
// Read by the library when it is loaded, once in a process and perhaps by an earlier test.
[[maybe_unused]] inline const int file_is_named = setenv("CTXB_TEST_IMAGE", file().c_str(), 1);

class ModuleTest : public BrokerTest {
 public:
  ~ModuleTest() override { std::filesystem::remove(file()); }

 protected:
  ModuleTest() { std::filesystem::remove(file()); }

  // Complete at once, as good tools write.
  static void write(const std::string& bytes) {
    const std::filesystem::path beside = file().string() + ".new";
    std::ofstream(beside, std::ios::binary) << bytes;
    std::filesystem::rename(beside, file());
  }

  LeaseMetrics lease_of(const std::string& tenant = "behaviours") {
    for (const TenantMetrics& one : broker.metrics().tenants) {
      if (one.name == tenant && !one.leases.empty()) return one.leases[0];
    }
    ADD_FAILURE() << "no lease of " << tenant;
    return {};
  }
  // Polls until the lease has so many modules: an unload waits until nothing runs.
  bool poll_until_modules_are(std::uint64_t count) {
    const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (lease_of().modules != count && std::chrono::steady_clock::now() < latest) broker.poll();
    return lease_of().modules == count;
  }
  bool is_software() { return broker.driver().kind == DriverChoice::software; }

  // What the driver's linker makes of PTX: machine code on a GPU.
  std::string linked_image(std::string text) {
    const RawDriver driver(broker.driver().path);
    constexpr CUjit_option* no_names = nullptr;
    constexpr void** no_values = nullptr;
    CUlinkState state = nullptr;
    void* image = nullptr;
    std::size_t bytes = 0;
    std::string made;
    Tenant host = broker.host();
    host.run(0, [&] {
      driver.check_call("cuLinkCreate_v2", 0u, no_names, no_values, &state);
      driver.check_call("cuLinkAddData_v2", state, CU_JIT_INPUT_PTX,
                        static_cast<void*>(text.data()), text.size() + 1, "affine", 0u, no_names,
                        no_values);
      driver.check_call("cuLinkComplete", state, &image, &bytes);
      made.assign(static_cast<const char*>(image), bytes);
      driver.check_call("cuLinkDestroy", state);
    });
    return made;
  }

  // What is said when the plug-in with an image from a file is activated.
  std::string refusal(const std::string& bytes) {
    write(bytes);
    PluginInstance instance = create("from_file");
    std::string text = error_text(ErrorKind::kernel_image, [&] { instance.activate(test_sizes); });
    EXPECT_THAT(text, ::testing::HasSubstr("module \"file\" cannot be loaded"));
    EXPECT_FALSE(instance.active());
    EXPECT_EQ(lease_of().modules, 0u);
    return text;
  }
};

inline float first_of(const std::vector<float>& output) {
  return output.at(0);
}

}  // namespace ctxbroker
