// SPDX-License-Identifier: Apache-2.0
// What functions and kernels tell about themselves, and what can be set of them.
#include <string>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

constexpr unsigned live = 48;  // values that `busy` needs at once

// busy and bounded need as many registers as they have live values; bounded may use 32, and 96
// threads in a block. deep has a local array that no compiler can do without, and 20 bytes of
// shared memory.
std::string module_text() {
  std::string body = R"(
  .reg .b32 %r<64>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd1, %rd1;
)";
  const auto number = [](unsigned value) { return std::to_string(value); };
  for (unsigned i = 0; i < live; ++i)
    body += "  ld.volatile.global.u32 %r" + number(i) + ", [%rd1+" + number(4 * i) + "];\n";
  for (unsigned i = 0; i < live; ++i)
    body +=
        "  st.volatile.global.u32 [%rd1+" + number(4 * i) + "], %r" + number(live - 1 - i) + ";\n";
  body += "  ret;\n}\n";
  return ".version 7.0\n.target sm_70\n.address_size 64\n"
         ".visible .entry busy(.param .u64 out)\n{" +
         body + ".visible .entry bounded(.param .u64 out) .maxntid 96, 1, 1 .maxnreg 32\n{" + body +
         R"(
.visible .entry deep(.param .u64 out)
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<6>;
  .local .align 4 .b8 array[256];
  .shared .align 4 .b8 cells[20];
  ld.param.u64 %rd1, [out];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u64 %rd2, array;
  mov.u32 %r1, 0;
AGAIN:
  ld.volatile.global.u32 %r2, [%rd1];
  and.b32 %r2, %r2, 63;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd4, %rd2, %rd3;
  st.local.u32 [%rd4], %r1;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p1, %r1, 64;
  @%p1 bra AGAIN;
  ld.volatile.global.u32 %r3, [%rd1+4];
  and.b32 %r3, %r3, 63;
  mul.wide.u32 %rd3, %r3, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.local.u32 %r4, [%rd4];
  st.volatile.shared.u32 [cells+4], %r4;
  bar.sync 0;
  ld.volatile.shared.u32 %r5, [cells+4];
  st.global.u32 [%rd1], %r5;
  ret;
}
)";
}

class FunctionTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(d.cuModuleLoadData(&module, module_text().c_str()), CUDA_SUCCESS);
    for (auto [name, function] : {std::pair{"busy", &busy}, {"bounded", &bounded}, {"deep", &deep}})
      ASSERT_EQ(d.cuModuleGetFunction(function, module, name), CUDA_SUCCESS);
  }
  int attribute(CUfunction_attribute which, CUfunction function) const {
    int value = -99;
    EXPECT_EQ(d.cuFuncGetAttribute(&value, which, function), CUDA_SUCCESS) << which;
    return value;
  }
  int of_device(CUdevice_attribute which) const {
    int value = -99;
    EXPECT_EQ(d.cuDeviceGetAttribute(&value, which, device), CUDA_SUCCESS);
    return value;
  }

  CUmodule module = nullptr;
  CUfunction busy = nullptr, bounded = nullptr, deep = nullptr;
};

TEST_F(FunctionTest, DirectivesBoundItsThreadsAndRegisters) {
  EXPECT_GT(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS, busy), 32);
  EXPECT_LE(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS, busy), 255);
  EXPECT_LE(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS, bounded), 32);
  EXPECT_GT(attribute(CU_FUNC_ATTRIBUTE_NUM_REGS, bounded), 0);
  EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, busy), 1024);
  EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bounded), 96);
}

TEST_F(FunctionTest, FunctionAttributesCountMemoryByTheByte) {
  EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, busy), 0);
  EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, busy), 0);
  EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, busy), 0);
  EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, deep), 20);
  EXPECT_GE(attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, deep), 256);
}

TEST_F(FunctionTest, VersionsAreThoseOfTheTextAndOfTheDevice) {
  EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_PTX_VERSION, busy), 70);
  EXPECT_EQ(attribute(CU_FUNC_ATTRIBUTE_BINARY_VERSION, busy),
            10 * of_device(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                of_device(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
}

TEST_F(FunctionTest, DynamicSharedMemoryGrowsToWhatTheDeviceHas) {
  constexpr auto most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  const int taken = attribute(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, deep);
  const int plain = of_device(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  const int opted_in = of_device(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(attribute(most, deep), plain - taken);
  EXPECT_EQ(d.cuFuncSetAttribute(deep, most, opted_in - taken), CUDA_SUCCESS);
  EXPECT_EQ(attribute(most, deep), opted_in - taken);
  EXPECT_EQ(d.cuFuncSetAttribute(deep, most, opted_in - taken + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuFuncSetAttribute(deep, most, -1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuFuncSetAttribute(deep, most, 0), CUDA_SUCCESS);
  EXPECT_EQ(attribute(most, deep), 0);
  EXPECT_EQ(attribute(most, busy), plain) << "the other function's is its own";
}

TEST_F(FunctionTest, ACarveoutIsAPercentageOrLeftToTheDriver) {
  constexpr auto carveout = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
  EXPECT_EQ(attribute(carveout, busy), -1);
  for (const int value : {0, 50, 100, -1}) {
    EXPECT_EQ(d.cuFuncSetAttribute(busy, carveout, value), CUDA_SUCCESS);
    EXPECT_EQ(attribute(carveout, busy), value);
  }
  EXPECT_EQ(d.cuFuncSetAttribute(busy, carveout, 101), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuFuncSetAttribute(busy, carveout, -2), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(FunctionTest, FunctionAttributesAreReadableAndMostAreReadOnly) {
  for (int which = 0; which < CU_FUNC_ATTRIBUTE_MAX; ++which)
    attribute(static_cast<CUfunction_attribute>(which), busy);
  for (const auto which :
       {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_BINARY_VERSION,
        CU_FUNC_ATTRIBUTE_CACHE_MODE_CA})
    EXPECT_EQ(d.cuFuncSetAttribute(busy, which, 1), CUDA_ERROR_INVALID_VALUE) << which;
  int value = 0;
  EXPECT_EQ(d.cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(-1), busy),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, busy),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(FunctionTest, KernelOfALibraryHasTheSameAttributesAsItsFunction) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_EQ(d.cuLibraryLoadData(&library, module_text().c_str(), nullptr, nullptr, 0, nullptr,
                                nullptr, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(d.cuLibraryGetKernel(&kernel, library, "bounded"), CUDA_SUCCESS);
  for (const auto which :
       {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_NUM_REGS, CU_FUNC_ATTRIBUTE_PTX_VERSION, CU_FUNC_ATTRIBUTE_BINARY_VERSION,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES}) {
    int value = -99;
    EXPECT_EQ(d.cuKernelGetAttribute(&value, which, kernel, device), CUDA_SUCCESS);
    EXPECT_EQ(value, attribute(which, bounded)) << which;
  }
  EXPECT_EQ(d.cuLibraryUnload(library), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
