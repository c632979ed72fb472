// SPDX-License-Identifier: Apache-2.0
// cuLink*: several images made one.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

#define CTXB_PTX_HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

// combine(p): *p = scaled(*p) + shifted(*p) + offset, each from another file; `helper` and `kept`
// are names that two files have for themselves.
const std::string main_ptx = CTXB_PTX_HEAD R"(
.extern .func (.param .b32 result) scaled(.param .b32 value);
.extern .func (.param .b32 result) shifted(.param .b32 value);
.extern .global .align 4 .u32 offset;
.visible .entry combine(.param .u64 place)
{
  .reg .b64 %address;
  .reg .b32 %r<6>;
  ld.param.u64 %address, [place];
  cvta.to.global.u64 %address, %address;
  ld.global.u32 %r0, [%address];
  { .param .b32 in; .param .b32 out;
    st.param.b32 [in], %r0;
    call.uni (out), scaled, (in);
    ld.param.b32 %r1, [out]; }
  { .param .b32 in; .param .b32 out;
    st.param.b32 [in], %r0;
    call.uni (out), shifted, (in);
    ld.param.b32 %r2, [out]; }
  ld.global.u32 %r3, [offset];
  add.u32 %r4, %r1, %r2;
  add.u32 %r4, %r4, %r3;
  st.global.u32 [%address], %r4;
  ret;
}
)";

const std::string scaled_ptx = CTXB_PTX_HEAD R"(
.global .align 4 .u32 kept = 10;
.func (.param .b32 result) helper(.param .b32 value)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r0, [value];
  ld.global.u32 %r1, [kept];
  mul.lo.u32 %r2, %r0, %r1;
  st.param.b32 [result], %r2;
  ret;
}
.visible .func (.param .b32 result) scaled(.param .b32 value)
{
  .reg .b32 %r<2>;
  ld.param.b32 %r0, [value];
  { .param .b32 in; .param .b32 out;
    st.param.b32 [in], %r0;
    call.uni (out), helper, (in);
    ld.param.b32 %r1, [out]; }
  st.param.b32 [result], %r1;
  ret;
}
)";

const std::string shifted_ptx = CTXB_PTX_HEAD R"(
.visible .global .align 4 .u32 offset = 1000;
.global .align 4 .u32 kept = 3;
.func (.param .b32 result) helper(.param .b32 value)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r0, [value];
  ld.global.u32 %r1, [kept];
  add.u32 %r2, %r0, %r1;
  st.param.b32 [result], %r2;
  ret;
}
.weak .func (.param .b32 result) shifted(.param .b32 value)
{
  .reg .b32 %r<2>;
  ld.param.b32 %r0, [value];
  { .param .b32 in; .param .b32 out;
    st.param.b32 [in], %r0;
    call.uni (out), helper, (in);
    ld.param.b32 %r1, [out]; }
  st.param.b32 [result], %r1;
  ret;
}
)";

// The same function, not weak: it is the one that is taken.
const std::string other_shifted_ptx = CTXB_PTX_HEAD R"(
.visible .func (.param .b32 result) shifted(.param .b32 value)
{
  .reg .b32 %r<2>;
  ld.param.b32 %r0, [value];
  add.u32 %r1, %r0, 50000;
  st.param.b32 [result], %r1;
  ret;
}
)";

constexpr unsigned combined(unsigned value) {
  return value * 10 + (value + 3) + 1000;
}

class LinkTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    create();
  }
  void TearDown() override {
    destroy();
    DriverTest::TearDown();
  }

  void create() {
    error_log.assign(8192, '\0');
    names[0] = CU_JIT_ERROR_LOG_BUFFER;
    names[1] = CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
    values[0] = error_log.data();
    values[1] = reinterpret_cast<void*>(error_log.size());
    ASSERT_EQ(d.cuLinkCreate_v2(2, names, values, &state), CUDA_SUCCESS);
  }
  void destroy() {
    if (state != nullptr) {
      EXPECT_EQ(d.cuLinkDestroy(state), CUDA_SUCCESS);
    }
    state = nullptr;
  }
  CUresult add(const std::string& text, const char* name, CUjitInputType type = CU_JIT_INPUT_PTX) {
    std::vector<char> copy(text.begin(), text.end());
    copy.push_back(0);
    return d.cuLinkAddData_v2(state, type, copy.data(), copy.size(), name, 0, nullptr, nullptr);
  }
  void add_three() {
    ASSERT_EQ(add(main_ptx, "main.ptx"), CUDA_SUCCESS) << log();
    ASSERT_EQ(add(scaled_ptx, "scaled.ptx"), CUDA_SUCCESS) << log();
    ASSERT_EQ(add(shifted_ptx, "shifted.ptx"), CUDA_SUCCESS) << log();
  }
  CUresult complete() { return d.cuLinkComplete(state, &image, &bytes); }
  std::string log() const { return error_log.c_str(); }

  // Expects that adding or completing fails, with these words in the log; says with what.
  CUresult failure_of(const std::vector<std::string>& texts) {
    CUresult status = CUDA_SUCCESS;
    int number = 0;
    for (const std::string& text : texts) {
      const std::string name = std::string(1, static_cast<char>('a' + number++)) + ".ptx";
      status = add(text, name.c_str());
      if (status != CUDA_SUCCESS) return status;
    }
    return complete();
  }

  unsigned run(CUfunction function, unsigned value) {
    CUdeviceptr place = 0;
    EXPECT_EQ(d.cuMemAlloc_v2(&place, 4), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyHtoD_v2(place, &value, 4), CUDA_SUCCESS);
    void* arguments[] = {&place};
    EXPECT_EQ(d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, place, 4), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemFree_v2(place), CUDA_SUCCESS);
    return value;
  }
  unsigned run_module(unsigned value) {
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_EQ(d.cuModuleLoadData(&module, image), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleGetFunction(&function, module, "combine"), CUDA_SUCCESS);
    if (function == nullptr) return 0;
    const unsigned result = run(function, value);
    EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
    return result;
  }

  std::string error_log;
  CUjit_option names[2] = {};  // the state's as long as it lives
  void* values[2] = {};
  CUlinkState state = nullptr;
  void* image = nullptr;
  std::size_t bytes = 0;
};

TEST_F(LinkTest, CallsAndVariablesAcrossThreeFilesAreLinked) {
  add_three();
  ASSERT_EQ(complete(), CUDA_SUCCESS) << log();
  ASSERT_NE(image, nullptr);
  EXPECT_GT(bytes, 0u);
  EXPECT_EQ(run_module(7), combined(7));
}

TEST_F(LinkTest, TheImageLoadsAsALibraryAndOutlivesTheStateThere) {
  add_three();
  ASSERT_EQ(complete(), CUDA_SUCCESS) << log();
  CUlibrary library = nullptr;
  ASSERT_EQ(d.cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  destroy();
  CUkernel kernel = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(d.cuLibraryGetKernel(&kernel, library, "combine"), CUDA_SUCCESS);
  ASSERT_EQ(d.cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  EXPECT_EQ(run(function, 8), combined(8));
  EXPECT_EQ(d.cuLibraryUnload(library), CUDA_SUCCESS);
}

TEST_F(LinkTest, ALoadedModuleOutlivesTheState) {
  add_three();
  ASSERT_EQ(complete(), CUDA_SUCCESS) << log();
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(d.cuModuleLoadData(&module, image), CUDA_SUCCESS);
  destroy();
  ASSERT_EQ(d.cuModuleGetFunction(&function, module, "combine"), CUDA_SUCCESS);
  EXPECT_EQ(run(function, 9), combined(9));
  CUdeviceptr address = 0;
  std::size_t size = 0;
  EXPECT_EQ(d.cuModuleGetGlobal_v2(&address, &size, module, "offset"), CUDA_SUCCESS);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(LinkTest, WeakDefinitionYieldsToAStrongOne) {
  add_three();
  ASSERT_EQ(add(other_shifted_ptx, "other.ptx"), CUDA_SUCCESS) << log();
  ASSERT_EQ(complete(), CUDA_SUCCESS) << log();
  EXPECT_EQ(run_module(7), 70u + 50007u + 1000u);
}

TEST_F(LinkTest, FilesAreLinkInputs) {
  auto path = std::filesystem::temp_directory_path() /
              ("ctxbroker_link_test_" + std::to_string(getpid()) + ".ptx");
  std::ofstream(path) << scaled_ptx;
  ASSERT_EQ(add(main_ptx, "main.ptx"), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, path.c_str(), 0, nullptr, nullptr),
            CUDA_SUCCESS)
      << log();
  ASSERT_EQ(add(shifted_ptx, nullptr), CUDA_SUCCESS) << log();
  EXPECT_EQ(complete(), CUDA_SUCCESS) << log();
  EXPECT_EQ(run_module(1), combined(1));
  std::filesystem::remove(path);
  destroy();
  create();
  EXPECT_EQ(d.cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, path.c_str(), 0, nullptr, nullptr),
            CUDA_ERROR_FILE_NOT_FOUND);
}

TEST_F(LinkTest, UndefinedReferenceIsNamed) {
  const CUresult status = failure_of({main_ptx, shifted_ptx});
  EXPECT_EQ(status, CUDA_ERROR_INVALID_SOURCE);
  EXPECT_NE(log().find("Undefined reference to 'scaled' in 'a.ptx'"), std::string::npos) << log();
  EXPECT_EQ(log().find("'shifted'"), std::string::npos) << log();
}

TEST_F(LinkTest, MultipleDefinitionIsNamed) {
  const CUresult status = failure_of({main_ptx, scaled_ptx, scaled_ptx, shifted_ptx});
  EXPECT_EQ(status, CUDA_ERROR_INVALID_SOURCE);
  if (d.is_software) {
    EXPECT_EQ(complete(), CUDA_ERROR_INVALID_SOURCE) << "what is left is not what was asked for";
  }
  EXPECT_NE(log().find("Multiple definition of 'scaled' in 'c.ptx', first defined in 'b.ptx'"),
            std::string::npos)
      << log();
}

TEST_F(LinkTest, ComparesTheSizesOfAVariable) {
  std::string wrong(main_ptx);
  wrong.replace(wrong.find(".u32 offset;"), 12, ".u64 offset;");
  const CUresult status = failure_of({wrong, scaled_ptx, shifted_ptx});
  EXPECT_EQ(status, CUDA_ERROR_INVALID_SOURCE);
  EXPECT_NE(log().find("Size doesn't match for 'offset'"), std::string::npos) << log();
}

TEST_F(LinkTest, BadInputIsRefused) {
  EXPECT_EQ(add(CTXB_PTX_HEAD ".visible .entry k() { frobnicate.u32 1; ret; }", "bad.ptx"),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(log().find("line 4"), std::string::npos) << log();
  destroy();
  create();
  for (const std::string garbage : {"\x01\x02\x03\x04 garbage", "some other text"}) {
    for (const auto type : {CU_JIT_INPUT_PTX, CU_JIT_INPUT_CUBIN, CU_JIT_INPUT_FATBINARY}) {
      EXPECT_EQ(add(garbage, "garbage", type), CUDA_ERROR_INVALID_IMAGE)
          << garbage << " as " << type;
      destroy();
      create();
    }
    EXPECT_NE(add(garbage, "garbage", CU_JIT_INPUT_OBJECT), CUDA_SUCCESS) << garbage;
    destroy();
    create();
  }
  EXPECT_EQ(add(".version 99.0\n.target sm_70\n.address_size 64\n", "new.ptx"),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
}

TEST_F(LinkTest, ChecksItsArguments) {
  EXPECT_EQ(d.cuLinkCreate_v2(0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuLinkAddFile_v2(state, CU_JIT_INPUT_PTX, nullptr, 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  if (!d.is_software) GTEST_SKIP() << "NVIDIA's driver may crash on null and dead states";
  EXPECT_EQ(d.cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, nullptr, 10, "x", 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  char text[] = "x";
  EXPECT_EQ(d.cuLinkAddData_v2(nullptr, CU_JIT_INPUT_PTX, text, 1, "x", 0, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuLinkComplete(nullptr, &image, &bytes), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuLinkComplete(state, nullptr, &bytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuLinkDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(LinkTest, NothingIsAddedToACompleteLink) {
  add_three();
  ASSERT_EQ(complete(), CUDA_SUCCESS) << log();
  EXPECT_EQ(add(other_shifted_ptx, "late.ptx"), CUDA_ERROR_INVALID_VALUE);
  if (d.is_software) {
    EXPECT_EQ(complete(), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_EQ(run_module(7), combined(7)) << "the image is what it was";
}

// The linked image of the software device can be an input of another link. NVIDIA's driver links
// for good, so its image cannot.
TEST_F(LinkTest, OutputOfALinkIsAnInput) {
  if (!d.is_software) GTEST_SKIP() << "NVIDIA's linked cubins are not relocatable";
  ASSERT_EQ(add(scaled_ptx, "scaled.ptx"), CUDA_SUCCESS);
  ASSERT_EQ(complete(), CUDA_SUCCESS) << log();
  const std::string linked(static_cast<const char*>(image), bytes);
  destroy();
  create();
  ASSERT_EQ(add(main_ptx, "main.ptx"), CUDA_SUCCESS);
  ASSERT_EQ(add(shifted_ptx, "shifted.ptx"), CUDA_SUCCESS);
  ASSERT_EQ(add(linked, "linked", CU_JIT_INPUT_CUBIN), CUDA_SUCCESS) << log();
  ASSERT_EQ(complete(), CUDA_SUCCESS) << log();
  EXPECT_EQ(run_module(7), combined(7));
}

}  // namespace
}  // namespace ctxbroker::test
