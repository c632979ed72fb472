// SPDX-License-Identifier: Apache-2.0
// NVIDIA's runtime library on the software device: it cannot work, and its user learns why. It is
// linked statically here, as nvcc does by default.
#include <cuda_runtime_api.h>

#include <filesystem>
#include <string>

#include "driver.hpp"
#include "support/child_process.hpp"

namespace ctxbroker::test {
namespace {

// The program that uses it: this one again, started by the test below, with the software device in
// the place of the driver.
TEST(SoftwareRuntime, DISABLED_RuntimeCallsAreNotSupported) {
  int count = -1;
  void* memory = nullptr;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNotSupported);
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorNotSupported);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorNotSupported);
}

TEST(SoftwareRuntime, RuntimeLibraryIsToldOnceWhyItDoesNotWork) {
  CTXB_REQUIRE_DEVICE();
  const auto folder = std::filesystem::path(software_device_path()).parent_path();
  const ChildResult program = run_child("SoftwareRuntime.DISABLED_RuntimeCallsAreNotSupported",
                                        {{"LD_LIBRARY_PATH", folder / "software_device"}});
  const std::string& text = program.output;
  EXPECT_EQ(program.exit_code, 0) << text;
  const std::string sentence = "NVIDIA's runtime library";
  const std::size_t at = text.find(sentence);
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find(sentence, at + 1), std::string::npos) << "once: " << text;
  const std::string line = text.substr(at, text.find('\n', at) - at);
  for (const char* part_of_it : {"does not work on ctxbroker's software device", "private tables",
                                 "driver API", "kernels as data", "NVIDIA GPU"})
    EXPECT_NE(line.find(part_of_it), std::string::npos) << line;
}

}  // namespace
}  // namespace ctxbroker::test
