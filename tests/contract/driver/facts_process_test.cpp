// SPDX-License-Identifier: Apache-2.0
// What other copies of the driver and other processes can do that this process cannot.
#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "facts.hpp"

namespace ctxbroker::test {
namespace {

class SecondDriver : public testing::Test {
 protected:
  void SetUp() override {
    CTXB_REQUIRE_DEVICE();
    CTXB_REQUIRE_NVIDIA("a second software device is a second device");
  }
  static std::filesystem::path driver_file() {
    link_map* map = nullptr;
    EXPECT_EQ(dlinfo(driver().library, RTLD_DI_LINKMAP, &map), 0) << dlerror();
    return std::filesystem::canonical(map->l_name);
  }
  // What cuInit of the library says; CUDA_ERROR_UNKNOWN when there is none.
  static CUresult init_of(void* library) {
    EXPECT_NE(library, nullptr) << dlerror();
    if (library == nullptr) return CUDA_ERROR_UNKNOWN;
    auto* init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(library, "cuInit"));
    EXPECT_NE(init, driver().cuInit);
    return init == nullptr ? CUDA_ERROR_UNKNOWN : init(0);
  }
};

TEST_F(SecondDriver, InItsOwnNamespaceIsRefusedOrCrashes) {
  expect_refused_or_crashed([] {
    EXPECT_EQ(driver().cuInit(0), CUDA_SUCCESS);
    void* copy = dlmopen(LM_ID_NEWLM, driver_file().c_str(), RTLD_NOW | RTLD_LOCAL);
    return init_of(copy);
  });
}

TEST_F(SecondDriver, AsARenamedFileIsRefused) {
  expect_in_child([] {
    EXPECT_EQ(driver().cuInit(0), CUDA_SUCCESS);
    const auto copy = std::filesystem::temp_directory_path() /
                      ("facts_driver_copy_" + std::to_string(getpid()) + ".so");
    std::filesystem::copy_file(driver_file(), copy);
    void* library = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::filesystem::remove(copy);
    EXPECT_EQ(init_of(library), CUDA_ERROR_OPERATING_SYSTEM);
  });
}

// Device memory that another process maps by a file descriptor.
class SharedMemory : public testing::Test {
 protected:
  void SetUp() override { CTXB_REQUIRE_DEVICE(); }
};

constexpr const char* descriptor_variable = "CTXB_FACTS_DESCRIPTOR";
constexpr CUmemAllocationHandleType by_descriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

std::size_t granularity() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  properties.requestedHandleTypes = by_descriptor;
  std::size_t bytes = 0;
  EXPECT_EQ(
      driver().cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      CUDA_SUCCESS);
  return bytes;
}

CUmemGenericAllocationHandle shareable_memory(std::size_t bytes) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  properties.requestedHandleTypes = by_descriptor;
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(driver().cuMemCreate(&handle, bytes, &properties, 0), CUDA_SUCCESS);
  return handle;
}

CUdeviceptr mapped(CUmemGenericAllocationHandle handle, std::size_t bytes) {
  const Driver& d = driver();
  CUdeviceptr address = 0;
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_EQ(d.cuMemAddressReserve(&address, bytes, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemMap(address, bytes, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemSetAccess(address, bytes, &access, 1), CUDA_SUCCESS);
  return address;
}

CUmodule ready() {
  const Driver& d = driver();
  CUcontext primary = nullptr;
  CUmodule module = nullptr;
  EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
  return module;
}

CUresult run(CUmodule module, const char* name, void** arguments) {
  CUfunction function = nullptr;
  EXPECT_EQ(driver().cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
  EXPECT_EQ(driver().cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
            CUDA_SUCCESS);
  return driver().cuCtxSynchronize();
}

// The worker: run by the test below, in a process of its own.
TEST_F(SharedMemory, DISABLED_WorkerWritesThenFaults) {
  const char* text = std::getenv(descriptor_variable);
  ASSERT_NE(text, nullptr) << "started by another test only";
  const CUmodule module = ready();
  const std::size_t bytes = granularity();
  CUmemGenericAllocationHandle handle = 0;
  void* descriptor = reinterpret_cast<void*>(static_cast<std::intptr_t>(std::atoi(text)));
  ASSERT_EQ(driver().cuMemImportFromShareableHandle(&handle, descriptor, by_descriptor),
            CUDA_SUCCESS);
  CUdeviceptr address = mapped(handle, bytes);
  unsigned value = 4711, count = 1;
  void* arguments[] = {&address, &value, &count};
  ASSERT_EQ(run(module, "fill", arguments), CUDA_SUCCESS);
  ASSERT_EQ(run(module, "crash", nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(SharedMemory, AFaultInAnotherProcessLeavesThisOneHealthy) {
  const Driver& d = driver();
  const CUmodule module = ready();
  const std::size_t bytes = granularity();
  const CUmemGenericAllocationHandle handle = shareable_memory(bytes);
  const CUdeviceptr address = mapped(handle, bytes);
  int descriptor = -1;
  ASSERT_EQ(d.cuMemExportToShareableHandle(&descriptor, handle, by_descriptor, 0), CUDA_SUCCESS);
  const int inherited = dup(descriptor);  // dup clears close-on-exec
  const std::string command = std::string(descriptor_variable) + "=" + std::to_string(inherited) +
                              " '" + std::filesystem::read_symlink("/proc/self/exe").string() +
                              "' --gtest_also_run_disabled_tests "
                              "--gtest_filter=SharedMemory.DISABLED_WorkerWritesThenFaults";
  const int ended = std::system(command.c_str());  // NOLINT(cert-env33-c): this program again
  EXPECT_TRUE(WIFEXITED(ended));
  EXPECT_EQ(WEXITSTATUS(ended), 0);
  unsigned word = 0;
  EXPECT_EQ(d.cuMemcpyDtoH_v2(&word, address, sizeof word), CUDA_SUCCESS);
  EXPECT_EQ(word, 4711u) << "the worker's kernel wrote this process's memory";
  EXPECT_EQ(run(module, "empty", nullptr), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemUnmap(address, bytes), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAddressFree(address, bytes), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemRelease(handle), CUDA_SUCCESS);
  close(descriptor);
  close(inherited);
  EXPECT_EQ(d.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
}

}  // namespace
}  // namespace ctxbroker::test
