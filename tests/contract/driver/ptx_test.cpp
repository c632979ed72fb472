// SPDX-License-Identifier: Apache-2.0
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

// .local variables by name, in every form that ptxas takes.
TEST_F(PtxTest, LocalVariablesAreReachedByName) {
  const std::string forms[] = {
      "st.local.u32 [stack], 42; ld.local.u32 %r0, [stack];",
      "st.local.u32[stack],42;ld.local.u32 %r0,[stack];",
      "st.local.u32 [stack+4], 42; ld.local.u32 %r0, [stack+4];",
      "st.local.u32 [ stack + 8 ], 42; ld.local.u32 %r0, [stack+8];",
      "st.local.u32 [stack+12], 42; ld.local.u32 %r0, stack[3];",
      "mov.u64 %rd4, stack; st.local.u32 [%rd4+4], 42; ld.local.u32 %r0, [stack+4];",
      "mov.u32 %r2, stack; st.local.u32 [%r2+4], 42; ld.local.u32 %r0, [stack+4];",
      "st.local.v2.u32 [stack+8], {41, 42}; ld.local.v2.u32 {%r3, %r0}, [stack+8];",
      "cvta.local.u64 %rd4, stack; st.u32 [%rd4+4], 42; ld.local.u32 %r0, [stack+4];",
      "{ .local .u32 %x; st.local.u32 [%x], 42; ld.local.u32 %r0, [%x]; }",
      "{ .local .u32 out; st.local.u32 [out], 42; ld.local.u32 %r0, [out]; }",
      "{ .local .u32 one; st.local.u32 [one], 42; ld.local.u32 %r0, [one]; }",
  };
  for (const std::string& form : forms) {
    EXPECT_EQ(run(kernel(form), 0, 2), std::vector<unsigned>(2, 42)) << form;
  }
}

constexpr const char* arrays =
    ".global .u32 g[4] = {10, 11, 12, 13}; .const .u32 c[4] = {20, 21, 22, 23};\n"
    ".global .u32 rows[2][2] = {{30, 31}, {32, 33}}; .global .b8 bytes[4] = {1, 2, 3, 4};\n"
    ".global .v2 .u32 pairs[2] = {{40, 41}, {42, 43}}; .global .u32 one = 5;\n"
    ".global .u64 address = g+8; .global .u64 generic_address = generic(g)+4;\n";

// An index counts elements, also of an array of several dimensions or of vectors.
TEST_F(PtxTest, ArraysCanBeIndexed) {
  const std::pair<const char*, unsigned> forms[] = {
      {"ld.global.u32 %r0, g[2];", 12},
      {"ld.global.u32 %r0, g [ 1+2 ];", 13},
      {"ld.global.u32 %r0, [g+4];", 11},
      {"ld.u32 %r0, g[1];", 11},
      {"ld.const.u32 %r0, c[3];", 23},
      {"ld.global.u32 %r0, rows[2];", 32},
      {"ld.global.u8 %r0, bytes[2];", 3},
      {"ld.global.u32 %r0, pairs[1];", 41},
      {"mov.u32 %r2, 2; ld.global.u32 %r0, g[%r2];", 12},
      {"mov.u32 %r2, 1; ld.global.u32 %r0, g[%r2+2];", 13},
      {"mov.u64 %rd4, 3; ld.global.u32 %r0, g[%rd4];", 13},
      {"mov.u64 %rd4, g[1]; ld.global.u32 %r0, [%rd4+4];", 12},
      {"cvta.global.u64 %rd4, g[1]; ld.u32 %r0, [%rd4];", 11},
      {"ld.global.v2.u32 {%r0, _}, g[2];", 12},
      {"st.shared.u32 s[3], 7; ld.shared.u32 %r0, [s+12];", 7},
      {"mov.u32 %r2, 3; st.shared.u32 [s+12], 8; ld.shared.u32 %r0, s[%r2];", 8},
      {"st.local.u32 stack[3], 9; ld.local.u32 %r0, [stack+12];", 9},
      {"mov.u32 %r2, 3; st.local.u32 stack[%r2], 9; ld.local.u32 %r0, [stack+12];", 9},
      {"st.global.u32 g[1], 77; ld.global.u32 %r0, [g+4];", 77},
      {"ld.global.u64 %rd4, [address]; ld.global.u32 %r0, [%rd4];", 12},
      {"ld.global.u64 %rd4, [generic_address]; ld.u32 %r0, [%rd4];", 11},
  };
  for (const auto& [form, expected] : forms) {
    EXPECT_EQ(run_one(kernel(std::string(".shared .u32 s[4];") + form, arrays)), expected) << form;
  }
  const char* const refused[] = {
      "ld.global.u32 %r0, one[0];",  "ld.global.u32 %r0, rows[1][1];",
      "ld.global.u32 %r0, [g[1]];",  "atom.global.add.u32 %r0, g[1], 1;",
      "add.u64 %rd4, %rd1, g[1];",   "ld.global.u32 %r0, %rd1[1];",
      "ld.global.u32 %r0, [g+%r1];", "ld.global.u32 %r0, g[1.5];",
  };
  for (const char* form : refused) {
    EXPECT_EQ(load(kernel(form, arrays)), CUDA_ERROR_INVALID_PTX) << form;
  }
  EXPECT_EQ(load(kernel("", std::string(arrays) + ".global .u64 x = g[2];")),
            CUDA_ERROR_INVALID_PTX);
}

// The name of a variable says where it lies, with a state space or without.
TEST_F(PtxTest, GenericAccessesByNameGoToTheVariable) {
  EXPECT_EQ(run_one(kernel("st.u32 [stack+4], 42; ld.local.u32 %r0, [stack+4];")), 42u);
  EXPECT_EQ(run_one(kernel("st.local.u32 [stack], 42; ld.u32 %r0, [stack];")), 42u);
  EXPECT_EQ(run_one(kernel(".shared .u32 s[2]; st.u32 [s+4], 41; atom.add.u32 %r2, [s+4], 1;"
                           "ld.shared.u32 %r0, s[1];")),
            42u);
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

TEST_F(PtxTest, RegistersMayBeVectors) {
  CUdeviceptr in = 0;
  ASSERT_EQ(d.cuMemAlloc_v2(&in, 16), CUDA_SUCCESS);
  const unsigned values[] = {1, 2, 3, 4};
  ASSERT_EQ(d.cuMemcpyHtoD_v2(in, values, 16), CUDA_SUCCESS);
  const std::pair<const char*, unsigned> forms[] = {
      {".reg .v4 .u32 v; ld.global.v4.u32 v, [%rd2]; add.u32 %r0, v.y, v.w;", 6},
      {".reg .v4 .u32 v; ld.global.v4.u32 v, [%rd2]; add.u32 %r0, v.r, v.b;", 4},
      {".reg .v2 .u32 v<3>; mov.v2.u32 v1, {7, 8}; mov.u32 %r0, v1.y;", 8},
      {".reg .v2 .u32 v, w; mov.v2.u32 v, {7, 8}; mov.v2.u32 w, v; mov.u32 %r0, w.x;", 7},
      {".reg .v2 .u32 v; mov.v2.u32 v, {7, 8}; mov.u32 v.r, 9; mov.u32 %r0, v.x;", 9},
      {".reg .v2 .u32 v; mov.v2.u32 v, {7, 8}; mov.v2.u32 v, {v.y, v.x}; mov.u32 %r0, v.y;", 7},
      {".reg .v2 .u32 v; mov.v2.u32 v, {7, 0}; mov.b64 %rd4, v; cvt.u32.u64 %r0, %rd4;", 7},
      {".reg .v2 .u32 v; mov.u64 %rd4, 0x500000006; mov.b64 v, %rd4; mov.u32 %r0, v.y;", 5},
      {".reg .v2 .u32 v; mov.u32 v.x, 3; mov.u32 v.y, 4; st.global.v2.u32 [%rd1], v;"
       "ld.global.u32 %r0, [%rd1+4];",
       4},
  };
  for (const auto& [form, expected] : forms) {
    EXPECT_EQ(run_one(kernel(form), in), expected) << form;
  }
  EXPECT_EQ(load(kernel(".reg .v2 .u32 v; add.u32 v, %r1, %r1;")), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(load(kernel(".reg .v4 .u32 v; mov.v2.u32 v, {%r1, %r2};")), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(d.cuMemFree_v2(in), CUDA_SUCCESS);
}

TEST_F(PtxTest, PacksSaturatedIntegers) {
  const std::string registers =
      "mov.u32 %r2, 70000; mov.u32 %r3, -70000; mov.u32 %r4, 5; mov.u32 %r5, 0x1234;";
  const std::pair<const char*, unsigned> forms[] = {
      {"cvt.pack.sat.u16.s32 %r0, %r2, %r3;", 0xffff0000},
      {"cvt.pack.sat.s16.s32 %r0, %r3, %r4;", 0x80000005},
      {"cvt.pack.sat.u8.s32.b32 %r0, %r2, %r4, %r5;", 0x1234ff05},
      {"cvt.pack.sat.s8.s32.b32 %r0, %r3, %r2, 0;", 0x807f},
      {"cvt.pack.sat.u4.s32.b32 %r0, %r2, %r4, %r5;", 0x1234f5},
      {"cvt.pack.sat.s4.s32.b32 %r0, %r3, %r4, %r5;", 0x123485},
      {"cvt.pack.sat.u2.s32.b32 %r0, %r4, %r3, %r5;", 0x1234c},
      {"cvt.pack.sat.s2.s32.b32 %r0, %r3, %r2, %r5;", 0x12349},
  };
  for (const auto& [form, expected] : forms) {
    EXPECT_EQ(
        run_one(kernel(registers + form, "", ".version 7.0\n.target sm_75\n.address_size 64\n")),
        expected)
        << form;
  }
}

TEST_F(PtxTest, SetGivesAllOnesOrOne) {
  const std::string registers =
      "mov.f32 %f1, 0f3f800000; mov.f32 %f2, 0f40000000; mov.f32 %f3, 0f7fc00000;"
      "mov.f64 %d1, 0d3ff0000000000000; mov.f64 %d2, 0d4000000000000000;"
      "mov.u32 %r2, -1; mov.u32 %r3, 1; mov.u16 %s1, -1; mov.u16 %s2, 1; mov.u64 %rd4, -1;"
      "mov.u64 %rd5, 1; setp.eq.u32 %p1, %r2, %r2;";
  const std::string declared = ".reg .f32 %f<5>; .reg .f64 %d<3>; .reg .b16 %s<3>;";
  const unsigned one = 0x3f800000;
  const std::pair<const char*, unsigned> forms[] = {
      {"set.lt.u32.f32 %r0, %f1, %f2;", ~0u},
      {"set.gt.u32.f32 %r0, %f1, %f2;", 0},
      {"set.nan.s32.f32 %r0, %f1, %f3;", ~0u},
      {"set.ltu.u32.f32 %r0, %f2, %f3;", ~0u},
      {"set.lt.ftz.u32.f32 %r0, %f1, %f2;", ~0u},
      {"set.lt.u32.f64 %r0, %d1, %d2;", ~0u},
      {"set.lt.f32.f64 %r0, %d1, %d2;", one},
      {"set.lt.s32.s16 %r0, %s1, %s2;", ~0u},
      {"set.lt.u32.u16 %r0, %s1, %s2;", 0},
      {"set.eq.u32.b16 %r0, %s1, %s1;", ~0u},
      {"set.lt.f32.s32 %r0, %r2, %r3;", one},
      {"set.lo.u32.u32 %r0, %r3, %r2;", ~0u},
      {"set.ne.u32.b32 %r0, %r3, %r2;", ~0u},
      {"set.lt.s32.s64 %r0, %rd4, %rd5;", ~0u},
      {"set.lt.f32.u64 %r0, %rd4, %rd5;", 0},
      {"set.eq.u32.b64 %r0, %rd4, %rd4;", ~0u},
      {"set.lt.and.u32.s32 %r0, %r2, %r3, !%p1;", 0},
      {"set.lt.xor.u32.s32 %r0, %r3, %r2, %p1;", ~0u},
      {"set.lt.or.f32.s32 %r0, %r3, %r2, %p1;", one},
  };
  for (const auto& [form, expected] : forms) {
    EXPECT_EQ(run_one(kernel(declared + registers + form)), expected) << form;
  }
  for (const char* form : {"set.lt.s64.s32 %rd4, %r2, %r3;", "set.lt.u32.b32 %r0, %r2, %r3;"}) {
    EXPECT_EQ(load(kernel(declared + registers + form)), CUDA_ERROR_INVALID_PTX) << form;
  }
}

TEST_F(PtxTest, HalfPrecisionIsRoundedOnce) {
  const std::string declared =
      ".reg .b16 %h<8>; .reg .f32 %f<3>; .reg .b32 %s<4>; .reg .pred %q<3>;";
  // 1, 3, 683/2048, the least number, the largest, the largest subnormal one, -1, NaN.
  const std::string values =
      "mov.b16 %h0, 0x3c00; mov.b16 %h1, 0x4200; mov.b16 %h2, 0x3556; mov.b16 %h3, 1;"
      "mov.b16 %h4, 0x7bff; mov.b16 %h5, 0x3ff; mov.b16 %h6, 0xbc00; mov.b16 %h7, 0x7e01;"
      "mov.b32 %s1, 0x3c004200; mov.b32 %s2, 0xbc003556; mov.b32 %s3, 0x7bff0001;";
  const std::pair<const char*, unsigned> forms[] = {
      {"fma.rn.f16 %h0, %h1, %h2, %h3; cvt.u32.u16 %r0, %h0;", 0x3c01},  // f32 would give 1
      {"add.f16 %h0, %h4, %h4; cvt.u32.u16 %r0, %h0;", 0x7c00},
      {"add.f16 %h0, %h0, %h7; cvt.u32.u16 %r0, %h0;", 0x7fff},
      {"sub.f16 %h0, %h5, %h3; cvt.u32.u16 %r0, %h0;", 0x3fe},
      {"add.ftz.f16 %h0, %h5, %h5; cvt.u32.u16 %r0, %h0;", 0},
      {"mul.f16 %h0, %h5, %h2; cvt.u32.u16 %r0, %h0;", 0x155},
      {"add.sat.f16 %h0, %h0, %h1; cvt.u32.u16 %r0, %h0;", 0x3c00},
      {"fma.rn.sat.f16 %h0, %h6, %h1, %h3; cvt.u32.u16 %r0, %h0;", 0},
      {"neg.f16 %h0, %h1; cvt.u32.u16 %r0, %h0;", 0xc200},
      {"abs.f16 %h0, %h6; cvt.u32.u16 %r0, %h0;", 0x3c00},
      {"neg.f16 %h0, %h7; cvt.u32.u16 %r0, %h0;", 0x7fff},
      {"abs.f16 %h0, %h7; cvt.u32.u16 %r0, %h0;", 0x7fff},
      {"add.f16x2 %r0, %s1, %s2;", 0x000042ab},
      {"fma.rn.f16x2 %r0, %s1, %s2, %s3;", 0x7bff3c01},
      {"cvt.f32.f16 %f1, %h3; mov.b32 %r0, %f1;", 0x33800000},
      {"mov.f32 %f1, 0f3f801000; cvt.rn.f16.f32 %h0, %f1; cvt.u32.u16 %r0, %h0;", 0x3c00},
      {"mov.f32 %f1, 0f3f801000; cvt.rp.f16.f32 %h0, %f1; cvt.u32.u16 %r0, %h0;", 0x3c01},
      {"mov.f32 %f1, 0f477ff000; cvt.rn.f16.f32 %h0, %f1; cvt.u32.u16 %r0, %h0;", 0x7c00},
      {"mov.f32 %f1, 0f477ff000; cvt.rz.f16.f32 %h0, %f1; cvt.u32.u16 %r0, %h0;", 0x7bff},
      {"cvt.rni.s32.f16 %r0, %h2;", 0},
      {"cvt.rpi.s32.f16 %r0, %h2;", 1},
      {"mov.u32 %r2, 2049; cvt.rn.f16.u32 %h0, %r2; cvt.u32.u16 %r0, %h0;", 0x6800},
      {"setp.lt.f16 %q1, %h6, %h3; selp.u32 %r0, 1, 0, %q1;", 1},
      {"setp.geu.f16 %q1, %h6, %h7; selp.u32 %r0, 1, 0, %q1;", 1},
      {"setp.gt.f16x2 %q1|%q2, %s1, %s2; selp.u32 %r0, 1, 0, %q1; @!%q2 add.u32 %r0, %r0, 2;", 1},
      {"set.gt.f16x2.f16x2 %r0, %s1, %s3;", 0x00003c00},
      {"set.gt.u32.f16x2 %r0, %s1, %s3;", 0x0000ffff},
      {"st.global.b32 [%rd1], %s1; atom.global.add.noftz.f16x2 %r2, [%rd1], %s2;"
       "ld.global.b32 %r0, [%rd1];",
       0x000042ab},
      {"shfl.sync.idx.b32 %r0, %s1, 0, 31, 1;", 0x3c004200},
  };
  for (const auto& [form, expected] : forms) {
    EXPECT_EQ(run_one(kernel(declared + values + form, "",
                             ".version 7.0\n.target sm_75\n.address_size 64\n")),
              expected)
        << form;
  }
}

// Forms that ptxas computes as the PTX ISA says.
TEST_F(PtxTest, ComputesVideoInstructions) {
  const std::string values = "mov.u32 %r2, 0x807f0110; mov.u32 %r3, 0x01ff0220; mov.u32 %r4, 1000;";
  const std::pair<const char*, unsigned> forms[] = {
      {"vabsdiff4.u32.u32.u32 %r0, %r2, %r3, %r4;", 0x7f800110},
      {"vabsdiff4.u32.u32.u32.add %r0, %r2, %r3, %r4;", 1000 + 0x7f + 0x80 + 0x01 + 0x10},
      {"vadd4.s32.s32.s32.sat %r0, %r2, %r3, %r4;", 0x817e0330},
      {"vsub4.u32.u32.u32.sat %r0, %r2, %r3, %r4;", 0x7f000000},
      {"vavrg2.u32.u32.u32 %r0, %r2, %r3, %r4;", 0x413f0198},
      {"vadd2.u32.u32.u32.add %r0, %r2, %r3, %r4;", 1000 + 0x807f + 0x0110 + 0x01ff + 0x0220},
      {"vset4.s32.s32.lt %r0.b31, %r2, %r3, %r4;", 0x010001e8},
      {"vadd.u32.u32.s32 %r0, %r2.b3, %r3.b2;", 0x7f},
      {"vsub.s32.s32.s32.sat %r0, %r2, %r3;", 0x80000000},
      {"vmin.s32.s32.u32.add %r0, %r2.b3, %r3.b0, %r4;", 1000 - 128},
      {"vadd.u32.u32.u32 %r0.b2, %r2.b0, %r3.b0, %r4;", 0x003003e8},
      {"vmad.u32.u32.u32 %r0, %r2.b0, %r3.b0, -%r4;", 0x200u - 1000},
      {"vshl.u32.u32.u32.clamp %r0, %r2.b2, %r3.b1;", 0x1fc},
      {"vset.u32.u32.gt.add %r0, %r2, %r3, %r4;", 1001},
  };
  for (const auto& [form, expected] : forms) {
    EXPECT_EQ(run_one(kernel(values + form)), expected) << form;
  }
}

// The constants that ptxas takes, and none else.
TEST_F(PtxTest, ConstantsOfBitFieldsEndAt255) {
  EXPECT_EQ(run_one(kernel("bfe.u32 %r0, 0xabcdef01, 255, 255;")), 0U);
  std::string errors;
  for (const char* form : {"bfe.u32 %r0, %r1, 256, 8;", "bfe.s32 %r0, %r1, 4, 264;",
                           "bfi.b32 %r0, %r1, %r1, 260, 8;"}) {
    EXPECT_EQ(load(kernel(form), &errors), CUDA_ERROR_INVALID_PTX) << form;
    EXPECT_NE(errors.find("255"), std::string::npos) << errors;
  }
}

TEST_F(PtxTest, ReducesWithinAWarp) {
  int major = 0;
  ASSERT_EQ(d.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
            CUDA_SUCCESS);
  if (major < 8) GTEST_SKIP() << "redux needs compute capability 8.0";
  const std::string value = "sub.u32 %r2, %r1, 16;";  // -16 to 15
  const std::string header = ".version 7.0\n.target sm_80\n.address_size 64\n";
  const std::pair<const char*, unsigned> forms[] = {
      {"add.s32", unsigned(-16)},
      {"add.u32", unsigned(-16)},
      {"min.s32", unsigned(-16)},
      {"max.s32", 15},
      {"min.u32", 0},
      {"max.u32", ~0u},
      {"and.b32", 0},
      {"or.b32", ~0u},
      {"xor.b32", 0},
  };
  for (const auto& [form, expected] : forms) {
    const std::string text = value + "redux.sync." + form + " %r0, %r2, -1;";
    EXPECT_EQ(run(kernel(text, "", header), 0, 32), std::vector<unsigned>(32, expected)) << form;
  }
  for (const char* form : {"add.b32", "and.s32", "min.b32"}) {
    const std::string text = value + "redux.sync." + form + " %r0, %r2, -1;";
    EXPECT_EQ(load(kernel(text, "", header)), CUDA_ERROR_INVALID_PTX) << form;
  }
}

// What a driver does not take it refuses by name.
TEST_F(PtxTest, AVariableMayHoldTheAddressOfAFunction) {
  std::string errors;
  const CUresult status = load(
      kernel("mov.u32 %r0, 0;", ".visible .func f() { ret; }\n.global .u64 table = f;\n"), &errors);
  if (status == CUDA_SUCCESS) {
    EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
    return;
  }
  EXPECT_EQ(status, CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(errors.find("line 5"), std::string::npos) << errors;
  EXPECT_NE(errors.find("'table' is the address of 'f', a function"), std::string::npos) << errors;
}

}  // namespace
}  // namespace ctxbroker::test
