// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class ProcAddressTest : public ::testing::Test {
 protected:
  void SetUp() override { CTXB_REQUIRE_DEVICE(); }
  struct Answer {
    CUresult status = CUDA_ERROR_UNKNOWN;
    void* address = nullptr;
    int result = -1;
  };
  Answer ask(const char* name, int version, cuuint64_t flags = 0) const {
    Answer answer;
    CUdriverProcAddressQueryResult result{};
    answer.status = d.cuGetProcAddress_v2(name, &answer.address, version, flags, &result);
    answer.result = result;
    return answer;
  }
  void* symbol(const char* name) const { return dlsym(d.library, name); }
  const Driver& d = driver();
};

// Look-ups need no cuInit.
TEST_F(ProcAddressTest, AnswersByVersion) {
  EXPECT_EQ(ask("cuMemAlloc", 12000).address, symbol("cuMemAlloc_v2"));
  EXPECT_EQ(ask("cuMemAlloc", 2000).address, symbol("cuMemAlloc"));
  EXPECT_EQ(ask("cuDevicePrimaryCtxReset", 7000).address, symbol("cuDevicePrimaryCtxReset"));
  EXPECT_EQ(ask("cuDevicePrimaryCtxReset", 12000).address, symbol("cuDevicePrimaryCtxReset_v2"));
  EXPECT_EQ(ask("cuInit", 12000).address, symbol("cuInit"));
}

TEST_F(ProcAddressTest, AnswersByDefaultStream) {
  cuuint64_t own = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  cuuint64_t legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  EXPECT_EQ(ask("cuMemcpyHtoD", 12000, own).address, symbol("cuMemcpyHtoD_v2_ptds"));
  EXPECT_EQ(ask("cuMemcpyHtoD", 12000, legacy).address, symbol("cuMemcpyHtoD_v2"));
  EXPECT_EQ(ask("cuLaunchKernel", 12000, own).address, symbol("cuLaunchKernel_ptsz"));
  EXPECT_EQ(ask("cuMemAlloc", 12000, own).address, symbol("cuMemAlloc_v2")) << "has no such form";
  EXPECT_EQ(ask("cuMemcpyHtoD", 5000, own).result, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

// Each row: what this version and default stream are answered with, and what the older version is;
// null: there is none.
TEST_F(ProcAddressTest, VersionedCallsAreAnsweredByVersionAndStream) {
  constexpr cuuint64_t own = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  const struct {
    const char* name;
    int version;
    int older;
    cuuint64_t flags;
    const char* answer;
    const char* answer_to_older;
  } rows[] = {
      {"cuDevicePrimaryCtxReset", 11000, 10020, 0, "cuDevicePrimaryCtxReset_v2",
       "cuDevicePrimaryCtxReset"},
      {"cuDevicePrimaryCtxRelease", 11000, 7000, 0, "cuDevicePrimaryCtxRelease_v2",
       "cuDevicePrimaryCtxRelease"},
      {"cuDevicePrimaryCtxSetFlags", 11000, 7000, 0, "cuDevicePrimaryCtxSetFlags_v2",
       "cuDevicePrimaryCtxSetFlags"},
      {"cuDevicePrimaryCtxRetain", 7000, 6050, own, "cuDevicePrimaryCtxRetain", nullptr},
      {"cuCtxCreate", 11040, 11030, 0, "cuCtxCreate_v3", "cuCtxCreate_v2"},
      {"cuCtxCreate", 3020, 3010, 0, "cuCtxCreate_v2", "cuCtxCreate"},
      {"cuCtxDestroy", 4000, 3020, own, "cuCtxDestroy_v2", "cuCtxDestroy"},
      {"cuCtxPushCurrent", 4000, 3020, 0, "cuCtxPushCurrent_v2", "cuCtxPushCurrent"},
      {"cuCtxPopCurrent", 4000, 3020, 0, "cuCtxPopCurrent_v2", "cuCtxPopCurrent"},
      {"cuCtxSetCurrent", 4000, 3020, own, "cuCtxSetCurrent", nullptr},
      {"cuMemAlloc", 3020, 3010, own, "cuMemAlloc_v2", "cuMemAlloc"},
      {"cuMemFree", 3020, 3010, own, "cuMemFree_v2", "cuMemFree"},
      {"cuMemAllocAsync", 11020, 11010, own, "cuMemAllocAsync_ptsz", nullptr},
      {"cuMemAllocAsync", 11020, 11010, 0, "cuMemAllocAsync", nullptr},
      {"cuStreamDestroy", 4000, 3020, own, "cuStreamDestroy_v2", "cuStreamDestroy"},
      {"cuStreamSynchronize", 7000, 6000, own, "cuStreamSynchronize_ptsz", nullptr},
      {"cuStreamBeginCapture", 10010, 10000, 0, "cuStreamBeginCapture_v2", "cuStreamBeginCapture"},
      {"cuStreamBeginCapture", 10010, 10000, own, "cuStreamBeginCapture_v2_ptsz",
       "cuStreamBeginCapture_ptsz"},
      // The header of CUDA 12 makes cuGraphInstantiateWithFlags of this name; the driver does not.
      {"cuGraphInstantiate", 12000, 10010, 0, "cuGraphInstantiate_v2", "cuGraphInstantiate"},
      {"cuGetProcAddress", 12000, 11030, 0, "cuGetProcAddress_v2", "cuGetProcAddress"},
      {"cuGetProcAddress", 12000, 11020, own, "cuGetProcAddress_v2", nullptr},
      {"cuGreenCtxDestroy", 12040, 12030, 0, "cuGreenCtxDestroy", nullptr},
      {"cuModuleUnload", 2000, 1000, 0, "cuModuleUnload", nullptr},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(ask(row.name, row.version, row.flags).address, symbol(row.answer)) << row.name;
    EXPECT_EQ(ask(row.name, row.version, row.flags).result, CU_GET_PROC_ADDRESS_SUCCESS);
    Answer old = ask(row.name, row.older, row.flags);
    EXPECT_EQ(old.status, CUDA_SUCCESS) << row.name;
    bool none = row.answer_to_older == nullptr;
    EXPECT_EQ(old.address, none ? nullptr : symbol(row.answer_to_older)) << row.name;
    EXPECT_EQ(old.result,
              none ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SUCCESS)
        << row.name;
  }
}

TEST_F(ProcAddressTest, AnswersAboutItselfWithTheRightArity) {
  EXPECT_EQ(ask("cuGetProcAddress", 11030).address, symbol("cuGetProcAddress"));
  EXPECT_EQ(ask("cuGetProcAddress", 12000).address, symbol("cuGetProcAddress_v2"));
}

TEST_F(ProcAddressTest, MissingSymbolIsAnsweredWithTheReason) {
  for (const char* unknown : {"cuNope", "", "cuMemAlloc_v2", "cuMemcpy_ptds"}) {
    Answer answer = ask(unknown, 12000);
    EXPECT_EQ(answer.status, CUDA_SUCCESS) << unknown;
    EXPECT_EQ(answer.address, nullptr) << unknown;
    EXPECT_EQ(answer.result, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) << unknown;
  }
  Answer old = ask("cuMemAlloc", 1000);
  EXPECT_EQ(old.status, CUDA_SUCCESS);
  EXPECT_EQ(old.address, nullptr);
  EXPECT_EQ(old.result, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  EXPECT_EQ(ask("cuMemAlloc", 99000).status, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask("cuMemAlloc", 12000, 4).status, CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ProcAddressTest, FirstFormFailsForAMissingSymbol) {
  void* address = nullptr;
  EXPECT_EQ(d.cuGetProcAddress("cuMemAlloc", &address, 11030, 0), CUDA_SUCCESS);
  EXPECT_EQ(address, symbol("cuMemAlloc_v2"));
  EXPECT_EQ(d.cuGetProcAddress("cuNope", &address, 12000, 0), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(d.cuGetProcAddress("cuGraphLaunch", &address, 9000, 0), CUDA_ERROR_NOT_FOUND);
  void* without_result = nullptr;
  EXPECT_EQ(d.cuGetProcAddress_v2("cuInit", &without_result, 12000, 0, nullptr), CUDA_SUCCESS);
  EXPECT_NE(without_result, nullptr);
}

}  // namespace
}  // namespace ctxbroker::test
