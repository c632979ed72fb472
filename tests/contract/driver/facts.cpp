// SPDX-License-Identifier: Apache-2.0
#include "facts.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

namespace ctxbroker::test {

const char* const facts_ptx = R"(
.version 7.0
.target sm_70
.address_size 64

.extern .func __assertfail(.param .b64 message, .param .b64 file, .param .b32 line,
                           .param .b64 function, .param .b64 char_size);
.global .align 1 .b8 message[8] = {110, 101, 118, 101, 114, 0, 0, 0};

.visible .entry record_multiprocessor(.param .u64 out)
{
  .reg .b32 %r<3>; .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %smid;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd2, %rd3;
  atom.global.add.u32 %r2, [%rd4], 1;
  ret;
}

.visible .entry fail_assertion()
{
  .reg .b32 %r<2>; .reg .b64 %rd<4>;
  mov.u64 %rd1, message;
  cvta.global.u64 %rd2, %rd1;
  mov.u32 %r1, 1;
  mov.u64 %rd3, 1;
  {
  .param .b64 message_p;
  .param .b64 file_p;
  .param .b32 line_p;
  .param .b64 function_p;
  .param .b64 size_p;
  st.param.b64 [message_p], %rd2;
  st.param.b64 [file_p], %rd2;
  st.param.b32 [line_p], %r1;
  st.param.b64 [function_p], %rd2;
  st.param.b64 [size_p], %rd3;
  call.uni __assertfail, (message_p, file_p, line_p, function_p, size_p);
  }
  ret;
}
)";

CUdevResource all_multiprocessors(CUdevice device) {
  CUdevResource all = {};
  EXPECT_EQ(driver().cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
  return all;
}

Split split_device(CUdevice device, unsigned multiprocessors_each) {
  const Driver& d = driver();
  CUdevResource all = all_multiprocessors(device);
  unsigned count = 0;
  EXPECT_EQ(d.cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, multiprocessors_each),
            CUDA_SUCCESS);
  Split split;
  split.groups.resize(count);
  EXPECT_EQ(d.cuDevSmResourceSplitByCount(split.groups.data(), &count, &all, &split.rest, 0,
                                          multiprocessors_each),
            CUDA_SUCCESS);
  EXPECT_EQ(count, split.groups.size());
  return split;
}

Green make_green(CUdevice device, std::vector<CUdevResource> resources) {
  const Driver& d = driver();
  CUdevResourceDesc description = nullptr;
  Green green;
  EXPECT_EQ(d.cuDevResourceGenerateDesc(&description, resources.data(),
                                        static_cast<unsigned>(resources.size())),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuGreenCtxCreate(&green.handle, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
            CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxFromGreenCtx(&green.context, green.handle), CUDA_SUCCESS);
  return green;
}

void destroy_green(const Green& green) {
  EXPECT_EQ(driver().cuGreenCtxDestroy(green.handle), CUDA_SUCCESS);
}

void FactsTest::SetUp() {
  KernelTest::SetUp();
  if (IsSkipped() || HasFatalFailure()) return;
  int version = 0;
  ASSERT_EQ(d.cuDriverGetVersion(&version), CUDA_SUCCESS);
  if (version < 12040) GTEST_SKIP() << "green contexts came with CUDA 12.4";
  ASSERT_EQ(d.cuModuleLoadData(&facts_module, facts_ptx), CUDA_SUCCESS);
  // Drivers load a function when it is first used, which may wait for kernels that run.
  ASSERT_EQ(launch("empty", nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
}

void FactsTest::TearDown() {
  for (const Green& green : std::exchange(greens_, {})) destroy_green(green);
  for (CUcontext context : std::exchange(contexts_, {}))
    EXPECT_EQ(d.cuCtxDestroy_v2(context), CUDA_SUCCESS);
  KernelTest::TearDown();
  // Retains that a test left are none of the next test's.
  while (primary != nullptr && d.cuDevicePrimaryCtxRelease_v2(device) == CUDA_SUCCESS) {
  }
}

Green FactsTest::green(std::vector<CUdevResource> resources) {
  greens_.push_back(make_green(device, std::move(resources)));
  return greens_.back();
}

CUcontext FactsTest::private_context() {
  CUcontext made = nullptr, popped = nullptr;
  EXPECT_EQ(d.cuCtxCreate_v2(&made, 0, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  contexts_.push_back(made);
  return made;
}

void FactsTest::gone(const Green& green) {
  std::erase_if(greens_, [&](const Green& one) { return one.handle == green.handle; });
}

void FactsTest::gone(CUcontext context) {
  std::erase(contexts_, context);
}

CUfunction FactsTest::fact_function(const char* name) const {
  CUfunction found = nullptr;
  EXPECT_EQ(d.cuModuleGetFunction(&found, facts_module, name), CUDA_SUCCESS) << name;
  return found;
}

CUdeviceptr FactsTest::memory(std::size_t bytes, unsigned fill_with) const {
  CUdeviceptr address = 0;
  EXPECT_EQ(d.cuMemAlloc_v2(&address, bytes), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemsetD32_v2(address, fill_with, bytes / 4), CUDA_SUCCESS);
  return address;
}

unsigned FactsTest::word_at(CUdeviceptr address) const {
  unsigned word = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&word, address, sizeof word), CUDA_SUCCESS);
  return word;
}

CUcontext FactsTest::current() const {
  CUcontext found = nullptr;
  EXPECT_EQ(d.cuCtxGetCurrent(&found), CUDA_SUCCESS);
  return found;
}

CUresult FactsTest::allocate() const {
  CUdeviceptr address = 0;
  const CUresult status = d.cuMemAlloc_v2(&address, 64);
  return status == CUDA_SUCCESS ? d.cuMemFree_v2(address) : status;
}

unsigned long long FactsTest::id_of(CUcontext context) const {
  unsigned long long id = 0;
  EXPECT_EQ(d.cuCtxGetId(context, &id), CUDA_SUCCESS);
  return id;
}

bool FactsTest::primary_active() const {
  unsigned flags = 0;
  int active = -1;
  EXPECT_EQ(d.cuDevicePrimaryCtxGetState(device, &flags, &active), CUDA_SUCCESS);
  return active == 1;
}

Current::Current(CUcontext context) : context_(context) {
  EXPECT_EQ(driver().cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
}

Current::~Current() {
  CUcontext popped = nullptr;
  EXPECT_EQ(driver().cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, context_);
}

Call::Call(CUcontext context, std::function<CUresult()> call)
    : result_(std::async(std::launch::async, [context, call = std::move(call)] {
        CUcontext popped = nullptr;
        CUresult status = driver().cuCtxPushCurrent_v2(context);
        if (status != CUDA_SUCCESS) return status;
        status = call();
        driver().cuCtxPopCurrent_v2(&popped);
        return status;
      })) {}

bool Call::returns_within(std::chrono::milliseconds patience) const {
  return result_.wait_for(patience) == std::future_status::ready;
}

CUresult Call::status() {
  return result_.get();
}

void expect_refused_or_crashed(const std::function<CUresult()>& body) {
  constexpr int refused = 42;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto expected = [](int status) {
    return (WIFEXITED(status) && WEXITSTATUS(status) == refused) ||
           (WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGABRT));
  };
  EXPECT_EXIT(
      {
        const CUresult status = body();
        std::_Exit(::testing::Test::HasFailure() || status == CUDA_SUCCESS ? 1 : refused);
      },
      expected, "");
}

}  // namespace ctxbroker::test
