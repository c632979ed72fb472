// SPDX-License-Identifier: Apache-2.0
#include "driver.hpp"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

namespace ctxbroker::test {
namespace {

bool nvidia_wanted() {
  const char* choice = std::getenv("CTXBROKER_DRIVER");
  return choice != nullptr && std::strcmp(choice, "nvidia") == 0;
}

// Asked of a child: this process may have to stay without CUDA.
bool nvidia_has_device(const Driver& driver) {
  pid_t child = fork();
  if (child == 0) _exit(driver.cuInit(0) == CUDA_SUCCESS ? 0 : 1);
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

Driver open_driver() {
  Driver driver;
  driver.is_software = !nvidia_wanted();
  driver.path = driver.is_software ? software_device_path() : "libcuda.so.1";
  driver.library = dlopen(driver.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver.library == nullptr) {
    driver.missing = std::string("no driver: ") + dlerror();
    return driver;
  }
  static_cast<DriverFunctions&>(driver) = DriverFunctions(driver.library);
  if (!driver.is_software && !nvidia_has_device(driver))
    driver.missing = "NVIDIA's driver finds no device";
  return driver;
}

}  // namespace

std::string software_device_path() {
  auto self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path().parent_path() / "lib/ctxbroker/libctxbroker_software_device.so";
}

int driver_version() {
  int version = 0;
  EXPECT_EQ(driver().cuDriverGetVersion(&version), CUDA_SUCCESS);
  return version;
}

const Driver& driver() {
  static const Driver opened = open_driver();
  return opened;
}

void DriverTest::SetUp() {
  CTXB_REQUIRE_DEVICE();
  ASSERT_EQ(d.cuInit(0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuDeviceGet(&device, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
}

void DriverTest::TearDown() {
  if (primary == nullptr) return;
  EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
  CUcontext popped = nullptr;
  while (d.cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS) {
  }
}

void KernelTest::SetUp() {
  DriverTest::SetUp();
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_EQ(d.cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
}

CUfunction KernelTest::function(const char* name) const {
  CUfunction found = nullptr;
  EXPECT_EQ(d.cuModuleGetFunction(&found, module, name), CUDA_SUCCESS) << name;
  return found;
}

CUresult KernelTest::launch(const char* name, CUstream stream, void** arguments, unsigned blocks,
                            unsigned threads) const {
  return d.cuLaunchKernel(function(name), blocks, 1, 1, threads, 1, 1, 0, stream, arguments,
                          nullptr);
}

CUresult KernelTest::fill(CUdeviceptr address, unsigned value, unsigned count,
                          CUstream stream) const {
  void* arguments[] = {&address, &value, &count};
  return launch("fill", stream, arguments, (count + 127) / 128, 128);
}

Hold::Hold(CUfunction hold, CUstream stream, unsigned blocks, unsigned threads) {
  void* memory = nullptr;
  EXPECT_EQ(driver().cuMemAllocHost_v2(&memory, sizeof *flag_), CUDA_SUCCESS);
  flag_ = static_cast<unsigned*>(memory);
  *flag_ = 0;
  CUdeviceptr address = 0;
  EXPECT_EQ(driver().cuMemHostGetDevicePointer_v2(&address, memory, 0), CUDA_SUCCESS);
  void* arguments[] = {&address};
  EXPECT_EQ(
      driver().cuLaunchKernel(hold, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr),
      CUDA_SUCCESS);
  EXPECT_EQ(driver().cuEventCreate(&end_, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuEventRecord(end_, stream), CUDA_SUCCESS);
}

void Hold::let_go() {
  std::atomic_ref<unsigned>(*flag_).store(1);
}

Hold::~Hold() {
  let_go();
  EXPECT_EQ(driver().cuEventSynchronize(end_), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuEventDestroy_v2(end_), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuMemFreeHost(flag_), CUDA_SUCCESS);
}

namespace {

[[noreturn]] void run_and_exit(const std::function<void()>& body) {
  body();
  const ::testing::TestResult& result =
      *::testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.total_part_count(); ++i) {
    const ::testing::TestPartResult& part = result.GetTestPartResult(i);
    if (part.failed())
      std::fprintf(stderr, "%s:%d: %s\n", part.file_name(), part.line_number(), part.message());
  }
  std::exit(result.Failed() ? 1 : 0);
}

}  // namespace

void expect_in_child(const std::function<void()>& body) {
  // Started afresh, not only forked: a driver does not live through a fork.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_and_exit(body), ::testing::ExitedWithCode(0), "");
}

bool eventually(const std::function<bool()>& condition) {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace ctxbroker::test
