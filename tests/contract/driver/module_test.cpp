// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class ModuleTest : public KernelTest {
 protected:
  // Loads with an error log; returns the status and leaves the log in `log`.
  CUresult load(const std::string& image, std::size_t log_size = 4096) {
    buffer.assign(log_size + 8, 'x');
    CUjit_option names[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {buffer.data(), reinterpret_cast<void*>(log_size)};
    CUmodule loaded = nullptr;
    CUresult status = d.cuModuleLoadDataEx(&loaded, image.c_str(), 2, names, values);
    reported = reinterpret_cast<std::uintptr_t>(values[1]);
    log = std::string(buffer.data(), strnlen(buffer.data(), log_size));
    return status;
  }
  std::vector<char> buffer;
  std::uintptr_t reported = 0;
  std::string log;
};

std::string entry(const std::string& body, const std::string& head = ".version 7.0\n") {
  return head + ".target sm_70\n.address_size 64\n.visible .entry none()\n{\n" + body + "\n}\n";
}

TEST_F(ModuleTest, FindsItsFunctions) {
  CUfunction first = nullptr, again = nullptr;
  EXPECT_EQ(d.cuModuleGetFunction(&first, module, "fill"), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleGetFunction(&again, module, "fill"), CUDA_SUCCESS);
  EXPECT_EQ(first, again);
  EXPECT_EQ(d.cuModuleGetFunction(&first, module, "nope"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(d.cuModuleGetFunction(&first, module, ""), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuModuleGetFunction(&first, module, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuModuleGetFunction(&first, nullptr, "fill"), CUDA_ERROR_INVALID_HANDLE);
  CUmodule owner = nullptr;
  EXPECT_EQ(d.cuFuncGetModule(&owner, again), CUDA_SUCCESS);
  EXPECT_EQ(owner, module);
}

TEST_F(ModuleTest, CountsAndListsItsFunctions) {
  unsigned count = 0;
  EXPECT_EQ(d.cuModuleGetFunctionCount(&count, module), CUDA_SUCCESS);
  EXPECT_EQ(count, 8u);
  std::vector<CUfunction> functions(count + 1, nullptr);
  EXPECT_EQ(d.cuModuleEnumerateFunctions(functions.data(), 3, module), CUDA_SUCCESS);
  EXPECT_NE(functions[2], nullptr);
  EXPECT_EQ(functions[3], nullptr);
  EXPECT_EQ(d.cuModuleEnumerateFunctions(functions.data(), count + 1, module), CUDA_SUCCESS);
  EXPECT_NE(functions[count - 1], nullptr);
  EXPECT_EQ(functions[count], nullptr);
}

TEST_F(ModuleTest, HasVariablesWithTheirInitialValues) {
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  ASSERT_EQ(d.cuModuleGetGlobal_v2(&address, &bytes, module, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 4u);
  unsigned value = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 7u);
  EXPECT_EQ(launch("bump", nullptr, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 8u);
  EXPECT_EQ(d.cuModuleGetGlobal_v2(nullptr, &bytes, module, "table"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 16u);
  EXPECT_EQ(d.cuModuleGetGlobal_v2(nullptr, nullptr, module, "table"), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuModuleGetGlobal_v2(&address, &bytes, module, "nope"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(d.cuModuleGetGlobal_v2(&address, &bytes, module, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ModuleTest, EachLoadHasVariablesOfItsOwn) {
  CUmodule second = nullptr;
  ASSERT_EQ(d.cuModuleLoadFatBinary(&second, kernels_ptx), CUDA_SUCCESS);
  CUdeviceptr ours = 0, others = 0;
  EXPECT_EQ(d.cuModuleGetGlobal_v2(&ours, nullptr, module, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleGetGlobal_v2(&others, nullptr, second, "counter"), CUDA_SUCCESS);
  EXPECT_NE(ours, others);
  EXPECT_EQ(launch("bump", nullptr, nullptr), CUDA_SUCCESS);
  unsigned value = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, others, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 7u);
}

// NVIDIA's driver does not check these: launching the dead function crashed 580.159.04 on an H200.
TEST_F(ModuleTest, UnloadedModuleIsAnInvalidHandle) {
  CUfunction empty = function("empty");
  EXPECT_EQ(d.cuModuleUnload(module), CUDA_SUCCESS);
  if (!d.is_software) GTEST_SKIP() << "NVIDIA's driver may crash on handles of an unloaded module";
  EXPECT_EQ(d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  CUfunction found = nullptr;
  EXPECT_EQ(d.cuModuleGetFunction(&found, module, "empty"), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuModuleUnload(nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(ModuleTest, DiesWithItsContext) {
  CUcontext other = nullptr;
  ASSERT_EQ(d.cuCtxCreate_v2(&other, 0, device), CUDA_SUCCESS);
  CUmodule loaded = nullptr;
  ASSERT_EQ(d.cuModuleLoadData(&loaded, kernels_ptx), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxDestroy_v2(other), CUDA_SUCCESS);
  if (!d.is_software) GTEST_SKIP() << "NVIDIA's driver may crash on handles of a destroyed context";
  CUfunction found = nullptr;
  CUresult status = d.cuModuleGetFunction(&found, loaded, "empty");
  EXPECT_TRUE(status == CUDA_ERROR_INVALID_HANDLE || status == CUDA_ERROR_CONTEXT_IS_DESTROYED)
      << status;
}

TEST_F(ModuleTest, LoadsFromAFile) {
  auto path = std::filesystem::temp_directory_path() /
              ("ctxbroker_module_test_" + std::to_string(getpid()) + ".ptx");
  std::ofstream(path) << kernels_ptx;
  CUmodule loaded = nullptr;
  EXPECT_EQ(d.cuModuleLoad(&loaded, path.c_str()), CUDA_SUCCESS);
  CUfunction found = nullptr;
  EXPECT_EQ(d.cuModuleGetFunction(&found, loaded, "empty"), CUDA_SUCCESS);
  std::filesystem::remove(path);
  EXPECT_EQ(d.cuModuleLoad(&loaded, path.c_str()), CUDA_ERROR_FILE_NOT_FOUND);
  EXPECT_EQ(d.cuModuleLoad(&loaded, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ModuleTest, LoadRefusesWhatIsNoImage) {
  CUmodule loaded = nullptr;
  EXPECT_EQ(load("this is no PTX"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_FALSE(log.empty());
  EXPECT_EQ(load(""), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(load("\x01\x02\x03\x04"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(d.cuModuleLoadData(&loaded, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuModuleLoadData(nullptr, kernels_ptx), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ModuleTest, NamesTheLineOfAMistake) {
  EXPECT_EQ(load(entry("  frobnicate.u32 1, 2;\n  ret;")), CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(log.find("line 6"), std::string::npos) << log;
  EXPECT_NE(log.find("frobnicate"), std::string::npos) << log;
  EXPECT_EQ(reported, log.size());
  EXPECT_EQ(load(entry("  mov.u32 %r1, 3;\n  ret;")), CUDA_ERROR_INVALID_PTX) << "no such register";
  EXPECT_NE(log.find("line 6"), std::string::npos) << log;
  EXPECT_EQ(load(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry none()\n{\n"),
            CUDA_ERROR_INVALID_PTX);
}

TEST_F(ModuleTest, RefusesPtxFromTheFuture) {
  EXPECT_EQ(load(entry("  ret;", ".version 99.0\n")), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_NE(log.find("99.0"), std::string::npos) << log;
  if (d.is_software) {  // NVIDIA's driver has another status for what is no version
    for (const char* version : {"999999999999999999999.0", "4294967303.0"}) {
      EXPECT_EQ(load(entry("  ret;", ".version " + std::string(version) + "\n")),
                CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
          << version;
    }
  }
  // The drivers of CUDA 13.0 know 9.0.
  int driver_version = 0;
  EXPECT_EQ(d.cuDriverGetVersion(&driver_version), CUDA_SUCCESS);
  if (driver_version < 13010) {
    EXPECT_EQ(load(entry("  ret;", ".version 9.5\n")), CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
    EXPECT_NE(log.find("9.5"), std::string::npos) << log;
  }
  EXPECT_EQ(load(".version 7.0\n.target sm_999\n.address_size 64\n.visible .entry n() { ret; }"),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_FALSE(log.empty());
}

TEST_F(ModuleTest, CutsTheLogToItsBuffer) {
  EXPECT_EQ(load(entry("  frobnicate.u32 1, 2;"), 10), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(log.size(), 9u);
  EXPECT_EQ(buffer[9], 0);
  EXPECT_EQ(buffer[10], 'x') << "written past the buffer";
  EXPECT_EQ(load(entry("  ret;")), CUDA_SUCCESS);
  EXPECT_EQ(reported, 0u);
}

TEST_F(ModuleTest, ChecksItsOptions) {
  CUmodule loaded = nullptr;
  CUjit_option unknown[] = {static_cast<CUjit_option>(999)};
  void* none[] = {nullptr, nullptr};
  EXPECT_EQ(d.cuModuleLoadDataEx(&loaded, kernels_ptx, 1, unknown, none), CUDA_ERROR_INVALID_VALUE);
  char log_buffer[16];
  CUjit_option no_size[] = {CU_JIT_ERROR_LOG_BUFFER};
  void* values[] = {log_buffer};
  EXPECT_EQ(d.cuModuleLoadDataEx(&loaded, kernels_ptx, 1, no_size, values),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuModuleLoadDataEx(&loaded, kernels_ptx, 1, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  CUjit_option harmless[] = {CU_JIT_MAX_REGISTERS, CU_JIT_OPTIMIZATION_LEVEL};
  void* levels[] = {reinterpret_cast<void*>(32), reinterpret_cast<void*>(4)};
  EXPECT_EQ(d.cuModuleLoadDataEx(&loaded, kernels_ptx, 2, harmless, levels), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
