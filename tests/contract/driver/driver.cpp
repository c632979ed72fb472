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
#define CTXB_LOAD(name) \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(driver.library, #name));
  CTXB_DRIVER_CALLS(CTXB_LOAD)
#undef CTXB_LOAD
  if (!driver.is_software && !nvidia_has_device(driver))
    driver.missing = "NVIDIA's driver finds no device";
  return driver;
}

}  // namespace

std::string software_device_path() {
  auto self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path().parent_path() / "lib/ctxbroker/libctxbroker_software_device.so";
}

const Driver& driver() {
  static const Driver opened = open_driver();
  return opened;
}

const char* const ptx = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .global .align 4 .u32 counter = 7;
.visible .const .align 4 .u32 table[4] = {1, 2, 3, 4};

.visible .entry fill(.param .u64 address, .param .u32 value, .param .u32 count)
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [address];
  ld.param.u32 %r1, [value];
  ld.param.u32 %r2, [count];
  cvta.to.global.u64 %rd4, %rd1;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd4, %rd2;
  st.global.u32 [%rd3], %r1;
DONE:
  ret;
}

.visible .entry add_one(.param .u64 address, .param .u32 count)
{
  .reg .pred %p<2>; .reg .b32 %r<9>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [address];
  ld.param.u32 %r2, [count];
  cvta.to.global.u64 %rd4, %rd1;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra DONE;
  mul.wide.u32 %rd2, %r6, 4;
  add.s64 %rd3, %rd4, %rd2;
  ld.global.u32 %r7, [%rd3];
  add.s32 %r8, %r7, 1;
  st.global.u32 [%rd3], %r8;
DONE:
  ret;
}

.visible .entry hold(.param .u64 flag)
{
  .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [flag];
  cvta.to.global.u64 %rd2, %rd1;
AGAIN:
  ld.volatile.global.u32 %r1, [%rd2];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra AGAIN;
  ret;
}

.visible .entry crash()
{
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  mov.u64 %rd1, 16;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}

.visible .entry trap()
{
  trap;
  ret;
}

.visible .entry bump()
{
  .reg .b32 %r<3>;
  ld.global.u32 %r1, [counter];
  add.s32 %r2, %r1, 1;
  st.global.u32 [counter], %r2;
  ret;
}

.visible .entry empty()
{
  ret;
}

.visible .entry shared_sum(.param .u64 in, .param .u64 out, .param .u32 count)
{
  .reg .pred %p<2>; .reg .b32 %r<12>; .reg .b64 %rd<8>;
  .shared .align 4 .b8 cells[4096];
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  ld.param.u32 %r1, [count];
  cvta.to.global.u64 %rd3, %rd1;
  cvta.to.global.u64 %rd4, %rd2;
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd5, %r2, 4;
  add.s64 %rd6, %rd3, %rd5;
  ld.global.u32 %r3, [%rd6];
  shl.b32 %r4, %r2, 2;
  mov.u32 %r5, cells;
  add.s32 %r6, %r5, %r4;
  st.shared.u32 [%r6], %r3;
  bar.sync 0;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 bra DONE;
  mov.u32 %r7, 0;
  mov.u32 %r8, 0;
  mov.u32 %r9, %r5;
NEXT:
  ld.shared.u32 %r10, [%r9];
  add.s32 %r7, %r7, %r10;
  add.s32 %r9, %r9, 4;
  add.s32 %r8, %r8, 1;
  setp.lt.u32 %p1, %r8, %r1;
  @%p1 bra NEXT;
  st.global.u32 [%rd4], %r7;
DONE:
  ret;
}
)";

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
  ASSERT_EQ(d.cuModuleLoadData(&module, ptx), CUDA_SUCCESS);
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
