// SPDX-License-Identifier: Apache-2.0
// What the software device does not have is refused by name: by status, and in its log.
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

// In its folder, which CUDA_LOG_FILE names.
class RefusalTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    setenv("CUDA_LOG_FILE", file.c_str(), 1);
    ASSERT_EQ(d.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    unsetenv("CUDA_LOG_FILE");
    std::filesystem::remove(file);
    KernelTest::TearDown();
  }
  // Returns what the driver has logged since the last call.
  std::string said() const {
    std::ifstream stream(file);
    std::string text{std::istreambuf_iterator<char>(stream), {}};
    std::filesystem::remove(file);
    return text;
  }
  static std::string line(const std::string& what) {
    return "[ERROR] " + what + " is not supported by ctxbroker's software device\n";
  }

  const std::string file = (std::filesystem::temp_directory_path() /
                            ("ctxb_refusals_" + std::to_string(getpid()) + ".log"))
                               .string();
  CUgraph graph = nullptr;
};

// None of them is waited for, or read without an end.
TEST_F(RefusalTest, ModuleFileThatIsNotARegularOneIsRefusedWithTheReason) {
  const std::string module = file + ".ptx";
  const auto refuses = [&](const std::string& name, const std::string& why,
                           CUresult status = CUDA_ERROR_FILE_NOT_FOUND) {
    CUmodule loaded = nullptr;
    EXPECT_EQ(d.cuModuleLoad(&loaded, name.c_str()), status) << name;
    EXPECT_NE(said().find("\"" + name + "\" " + why), std::string::npos) << name;
  };
  refuses(module, "there is no such file");
  refuses("/tmp", "is a folder");
  refuses("/dev/zero", "is not a regular file");
  ASSERT_EQ(mkfifo(module.c_str(), 0600), 0);
  refuses(module, "is not a regular file");
  std::filesystem::remove(module);
  std::ofstream(module) << "x";
  std::filesystem::resize_file(module, std::uintmax_t{1} << 40);
  refuses(module, "has more than 2147483648 bytes", CUDA_ERROR_INVALID_IMAGE);
  std::filesystem::remove(module);
}

TEST_F(RefusalTest, ConditionalNodesAndHandlesAreRefusedByName) {
  CUgraphConditionalHandle handle = 0;
  EXPECT_EQ(d.cuGraphConditionalHandleCreate(&handle, graph, primary, 0, 0),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(said(), line("cuGraphConditionalHandleCreate"));
  CUgraphNode node = nullptr;
  CUgraphNodeParams parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  EXPECT_EQ(d.cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &parameters),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(said(), line("a conditional node of a graph"));
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  EXPECT_EQ(d.cuGraphAddNode_v2(&node, graph, nullptr, nullptr, 0, &parameters),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(said(), line("a child graph"));
}

TEST_F(RefusalTest, UnimplementedCallsAreRefusedByName) {
  const auto call = reinterpret_cast<CUresult (*)()>(dlsym(d.library, "cuImportExternalMemory"));
  ASSERT_NE(call, nullptr);
  EXPECT_EQ(call(), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(said(), line("cuImportExternalMemory"));
}

TEST_F(RefusalTest, VariableAlignedToMoreThanAnAllocationIsRefusedOnLoad) {
  const auto aligned_to = [](const std::string& bytes) {
    return ".version 8.3\n.target sm_75\n.address_size 64\n.global .align " + bytes +
           " .b8 table[16];\n";
  };
  CUmodule loaded = nullptr;
  EXPECT_EQ(d.cuModuleLoadData(&loaded, aligned_to("1024").c_str()), CUDA_ERROR_INVALID_PTX);
  const std::string errors = said();
  EXPECT_NE(errors.find("the variable table is aligned to 1024 bytes"), std::string::npos)
      << errors;
  ASSERT_EQ(d.cuModuleLoadData(&loaded, aligned_to("512").c_str()), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  EXPECT_EQ(d.cuModuleGetGlobal_v2(&address, nullptr, loaded, "table"), CUDA_SUCCESS);
  EXPECT_EQ(address % 512, 0U);
  EXPECT_EQ(d.cuModuleUnload(loaded), CUDA_SUCCESS);
}

// The kernel calls cudaGraphSetConditional in the way in which nvcc writes it.
TEST_F(RefusalTest, KernelThatSetsAConditionIsRefusedOnLoad) {
  const std::string text = R"(.version 8.3
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 handle, .param .b32 value);
.visible .entry k(.param .u64 handle)
{
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [handle];
  mov.u32 %r1, 1;
  {
    .param .b64 param0;
    st.param.b64 [param0+0], %rd1;
    .param .b32 param1;
    st.param.b32 [param1+0], %r1;
    call.uni cudaGraphSetConditional, (param0, param1);
  }
  ret;
}
)";
  std::vector<char> log(1024);
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  // NOLINTNEXTLINE(performance-no-int-to-ptr): so the call takes numbers
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule loaded = nullptr;
  EXPECT_EQ(d.cuModuleLoadDataEx(&loaded, text.c_str(), 2, options, values),
            CUDA_ERROR_INVALID_PTX);
  const std::string errors = log.data();
  EXPECT_NE(errors.find("'cudaGraphSetConditional'"), std::string::npos) << errors;
  EXPECT_NE(errors.find("not supported by the software device"), std::string::npos) << errors;
}

}  // namespace
}  // namespace ctxbroker::test
