// What PTX means where compilers and people rely on it, in the words that the documentation leaves
// open: each answer here was seen on a GPU or follows from the PTX ISA.
#include <numeric>
#include <string>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

constexpr const char* sm_70 = ".version 7.0\n.target sm_70\n.address_size 64\n";

// Runs a kernel whose threads leave their result in %r0.
class PtxTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(d.cuMemAlloc_v2(&out, 4096), CUDA_SUCCESS);
  }

  // A kernel k(out, in) around `body`. %rd1 is the address of out, %rd2 of in, %r1 the thread.
  static std::string kernel(const std::string& body, const std::string& declarations = "",
                            const std::string& header = sm_70) {
    return header + declarations + R"(
.visible .entry k(.param .u64 out, .param .u64 in)
{
  .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>;
  .local .align 16 .u32 stack[8];
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  mov.u32 %r1, %tid.x;
)" + body + R"(
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd3, %rd1, %rd3;
  st.global.u32 [%rd3], %r0;
  ret;
}
)";
  }

  CUresult load(const std::string& text, std::string* errors = nullptr) {
    std::vector<char> log(4096);
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    // NOLINTNEXTLINE(performance-no-int-to-ptr): so the call takes numbers
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
    const CUresult status = d.cuModuleLoadDataEx(&module, text.c_str(), 2, options, values);
    if (errors != nullptr) *errors = log.data();
    return status;
  }

  std::vector<unsigned> run(const std::string& text, CUdeviceptr in = 0, unsigned threads = 1) {
    std::vector<unsigned> results(threads, 0xabababab);
    std::string errors;
    EXPECT_EQ(load(text, &errors), CUDA_SUCCESS) << errors << text;
    CUfunction k = nullptr;
    EXPECT_EQ(d.cuModuleGetFunction(&k, module, "k"), CUDA_SUCCESS);
    void* arguments[] = {&out, &in};
    EXPECT_EQ(d.cuMemcpyHtoD_v2(out, results.data(), 4 * threads), CUDA_SUCCESS);
    EXPECT_EQ(d.cuLaunchKernel(k, 1, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyDtoH_v2(results.data(), out, 4 * threads), CUDA_SUCCESS) << text;
    EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
    return results;
  }
  unsigned run_one(const std::string& text, CUdeviceptr in = 0) { return run(text, in).front(); }

  CUdeviceptr out = 0;
  CUmodule module = nullptr;
};

// nvcc reads four floats where a loop needs three, also of an array that ends after seven.
TEST_F(PtxTest, WideReadsMayEndBeyondAnAllocation) {
  CUdeviceptr in = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&in, 28), CUDA_SUCCESS);
  std::vector<unsigned> values(7);
  std::iota(values.begin(), values.end(), 1u);
  ASSERT_EQ(d.cuMemcpyHtoD_v2(in, values.data(), 28), CUDA_SUCCESS);
  const std::string sum = "add.u32 %r0, %r4, %r5; add.u32 %r0, %r0, %r6;";
  for (const char* load : {"ld.global.nc.v4.u32", "ld.global.v4.u32", "ld.v4.f32"}) {
    const std::string read = std::string(load) + " {%r4, %r5, %r6, %r7}, [%rd2+16];";
    EXPECT_EQ(run_one(kernel(read + sum), in), 5u + 6 + 7) << load;
    const std::string pragma = ".pragma \"used_bytes_mask 0xfff\";\n";
    EXPECT_EQ(
        run_one(kernel(pragma + read + sum, "", ".version 8.3\n.target sm_70\n.address_size 64\n"),
                in),
        5u + 6 + 7)
        << load;
  }
  // Of several lanes, each with its own address or all with the same.
  const std::string pair =
      "shl.b32 %r2, %r1, 4; cvt.u64.u32 %rd4, %r2; add.s64 %rd4, %rd2, %rd4;"
      "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd4];";
  EXPECT_EQ(run(kernel(pair + sum), in, 2), (std::vector<unsigned>{1 + 2 + 3, 5 + 6 + 7}));
  EXPECT_EQ(run(kernel("ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd2+16];" + sum), in, 64),
            std::vector<unsigned>(64, 18));
  EXPECT_EQ(d.cuMemFree_v2(in), CUDA_SUCCESS);
}

// The bit that sub.cc leaves is a carry, not a borrow: subtraction adds the complement.
TEST_F(PtxTest, SubtractionLeavesACarry) {
  EXPECT_EQ(run_one(kernel("mov.u32 %r2, 1; mov.u32 %r3, 2;"
                           "sub.cc.u32 %r4, %r2, %r3; addc.u32 %r0, 0, 0;")),
            0u);
  EXPECT_EQ(run_one(kernel("mov.u32 %r2, 2; mov.u32 %r3, 1;"
                           "sub.cc.u32 %r4, %r2, %r3; subc.cc.u32 %r4, 0, 0; subc.u32 %r0, 7, 3;")),
            4u);
  EXPECT_EQ(run_one(kernel("mov.u32 %r2, 1; mov.u32 %r3, 2;"
                           "sub.cc.u32 %r4, %r2, %r3; subc.cc.u32 %r4, 0, 0; subc.u32 %r0, 7, 3;")),
            3u);
}

// Lanes 16 and up exit first.
TEST_F(PtxTest, ShufflesDownFromAnInactiveLaneGiveZero) {
  const std::vector<unsigned> results =
      run(kernel("add.u32 %r2, %r1, 100; setp.ge.u32 %p1, %r1, 16; @%p1 exit;"
                 "shfl.sync.down.b32 %r0|%p2, %r2, 4, 31, 0xffff; @%p2 add.u32 %r0, %r0, 1000;"),
          0, 32);
  std::vector<unsigned> expected(32, 0xabababab);
  for (unsigned i = 0; i < 16; ++i) expected[i] = 1000 + (i < 12 ? i + 104 : 0);
  EXPECT_EQ(results, expected);
}

std::string header(const std::string& version, const std::string& target) {
  return ".version " + version + "\n.target " + target + "\n.address_size 64\n";
}

TEST_F(PtxTest, WarpOperationsNeedSyncSinceVersion64) {
  const char* const removed[] = {"vote.ballot.b32 %r0, %p1;", "vote.all.pred %p2, %p1;",
                                 "shfl.down.b32 %r0, %r1, 1, 31;"};
  const std::string body = "mov.u32 %r0, 0; setp.eq.u32 %p1, %r1, %r1;\n";
  for (const std::string form : removed) {
    std::string errors;
    EXPECT_EQ(load(kernel(body + form, "", header("6.4", "sm_70")), &errors),
              CUDA_ERROR_INVALID_PTX)
        << form;
    EXPECT_NE(errors.find("line 15"), std::string::npos) << errors;
    EXPECT_NE(errors.find(".sync"), std::string::npos) << errors;
    EXPECT_EQ(load(kernel(body + form, "", header("9.0", "sm_75"))), CUDA_ERROR_INVALID_PTX)
        << form;
    EXPECT_EQ(load(kernel(body + form, "", header("6.3", "sm_70")), &errors), CUDA_SUCCESS)
        << form << errors;
    EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
    EXPECT_EQ(load(kernel(body + form, "", header("6.4", "sm_61")), &errors), CUDA_SUCCESS)
        << form << errors;
    EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
  }
  for (const char* form : {"match.any.b32 %r0, %r1, -1;", "redux.add.s32 %r0, %r1, -1;"}) {
    EXPECT_EQ(load(kernel(body + form, "", header("7.0", "sm_70"))), CUDA_ERROR_INVALID_PTX)
        << form;
  }
}

TEST_F(PtxTest, ConstantBytesAreThoseOfTheModule) {
  ASSERT_EQ(load(kernel("ld.const.u32 %r0, [table+4];", ".const .align 4 .u32 table[20];\n")),
            CUDA_SUCCESS);
  CUfunction k = nullptr;
  int bytes = 0;
  ASSERT_EQ(d.cuModuleGetFunction(&k, module, "k"), CUDA_SUCCESS);
  EXPECT_EQ(d.cuFuncGetAttribute(&bytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, k), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 80);
  EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
