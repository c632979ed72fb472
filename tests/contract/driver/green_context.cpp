// SPDX-License-Identifier: Apache-2.0
#include "green_context.hpp"

#if CUDA_VERSION >= 12090
namespace ctxbroker::test {

void GreenTest::SetUp() {
  KernelTest::SetUp();
  if (IsSkipped() || HasFatalFailure()) return;
  CUdevResource all = whole();
  green = create(&all, 1);
  ASSERT_NE(green, nullptr);
  green_context = context_of(green);
}

void GreenTest::TearDown() {
  if (green != nullptr) destroy_green();
  KernelTest::TearDown();
}

CUdevResource GreenTest::whole() const {
  CUdevResource all = {};
  EXPECT_EQ(d.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
  return all;
}

CUgreenCtx GreenTest::create(CUdevResource* resources, unsigned count) const {
  CUdevResourceDesc descriptor = nullptr;
  EXPECT_EQ(d.cuDevResourceGenerateDesc(&descriptor, resources, count), CUDA_SUCCESS);
  CUgreenCtx made = nullptr;
  EXPECT_EQ(d.cuGreenCtxCreate(&made, descriptor, device, CU_GREEN_CTX_DEFAULT_STREAM),
            CUDA_SUCCESS);
  return made;
}

CUcontext GreenTest::context_of(CUgreenCtx of) const {
  CUcontext context = nullptr;
  EXPECT_EQ(d.cuCtxFromGreenCtx(&context, of), CUDA_SUCCESS);
  return context;
}

void GreenTest::destroy_green() {
  EXPECT_EQ(d.cuGreenCtxDestroy(green), CUDA_SUCCESS);
  green = nullptr;
}

}  // namespace ctxbroker::test
#endif
