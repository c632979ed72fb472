// SPDX-License-Identifier: Apache-2.0
// What only the software device promises: an answer for every stale handle, several devices, and
// errors in words.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

using SoftwareDeviceTest = KernelTest;

TEST_F(SoftwareDeviceTest, StaleHandlesAreAnErrorNotACrash) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  float milliseconds = 0;
  unsigned flags = 0;
  ASSERT_EQ(d.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&event, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuStreamGetFlags(stream, &flags), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuEventDestroy_v2(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuEventRecord(event, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuEventElapsedTime(&milliseconds, event, event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launch("empty", stream, nullptr), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(SoftwareDeviceTest, HandlesOfAnotherKindOrOfNoneAreAnError) {
  char junk[64] = {};
  auto as_stream = reinterpret_cast<CUstream>(module);
  EXPECT_EQ(d.cuStreamQuery(as_stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuStreamQuery(reinterpret_cast<CUstream>(junk)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuModuleUnload(reinterpret_cast<CUmodule>(junk)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuCtxSetCurrent(reinterpret_cast<CUcontext>(junk)), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuCtxDestroy_v2(reinterpret_cast<CUcontext>(module)), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(SoftwareDeviceTest, HandlesOfAResetPrimaryStayInvalid) {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(d.cuEventCreate(&event, 0), CUDA_SUCCESS);
  CUfunction empty = function("empty");
  ASSERT_EQ(d.cuDevicePrimaryCtxReset_v2(device), CUDA_SUCCESS);
  CUcontext again = nullptr;
  ASSERT_EQ(d.cuDevicePrimaryCtxRetain(&again, device), CUDA_SUCCESS);
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(d.cuDeviceGetDefaultMemPool(&pool, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuMemAllocFromPoolAsync(&address, 4096, pool, stream),
            CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(d.cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuDevicePrimaryCtxRelease_v2(device), CUDA_SUCCESS);
}

TEST_F(SoftwareDeviceTest, UnloadedLibraryInvalidatesItsKernelsAndModules) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction empty = nullptr;
  CUmodule placed = nullptr;
  ASSERT_EQ(d.cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(d.cuLibraryGetKernel(&kernel, library, "empty"), CUDA_SUCCESS);
  ASSERT_EQ(d.cuKernelGetFunction(&empty, kernel), CUDA_SUCCESS);
  ASSERT_EQ(d.cuLibraryGetModule(&placed, library), CUDA_SUCCESS);
  ASSERT_EQ(d.cuLibraryUnload(library), CUDA_SUCCESS);
  auto launched = [&](CUfunction function) {
    return d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(launched(empty), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(launched(reinterpret_cast<CUfunction>(kernel)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuKernelGetFunction(&empty, kernel), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuLibraryGetModule(&placed, library), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(d.cuModuleUnload(placed), CUDA_ERROR_INVALID_HANDLE);
}

// The options of a library that the software device cannot heed are refused, not ignored.
TEST_F(SoftwareDeviceTest, RefusesATableOfHostFunctionsForALibrary) {
  CUlibrary library = nullptr;
  CUlibraryOption option = CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE;
  void* table = nullptr;
  auto load = [&] {
    return d.cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, &option, &table, 1);
  };
  EXPECT_EQ(load(), CUDA_ERROR_NOT_SUPPORTED);
  option = CU_LIBRARY_BINARY_IS_PRESERVED;
  EXPECT_EQ(load(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLibraryUnload(library), CUDA_SUCCESS);
}

// A launch with clusters of several blocks is refused. An attribute that only allows something is
// accepted and has no effect.
TEST_F(SoftwareDeviceTest, RefusesClusters) {
  CUlaunchAttribute attribute = {};
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  const auto launched = [&] {
    return d.cuLaunchKernelEx(&config, function("empty"), nullptr, nullptr);
  };
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {1, 1, 1};
  EXPECT_EQ(launched(), CUDA_SUCCESS) << "each block for itself";
  config.gridDimX = 2;
  attribute.value.clusterDim.x = 2;
  EXPECT_EQ(launched(), CUDA_ERROR_NOT_SUPPORTED);
  attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  EXPECT_EQ(launched(), CUDA_SUCCESS);
  int value = -1;
  EXPECT_EQ(d.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, device),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 0) << "and says so";
}

TEST_F(SoftwareDeviceTest, LogNamesTheKernelAndSizesOfABadLaunch) {
#if CUDA_VERSION >= 12090
  auto register_reader = reinterpret_cast<decltype(&::cuLogsRegisterCallback)>(
      dlsym(d.library, "cuLogsRegisterCallback"));
  auto unregister = reinterpret_cast<decltype(&::cuLogsUnregisterCallback)>(
      dlsym(d.library, "cuLogsUnregisterCallback"));
  std::string said;
  auto reader = [](void* data, CUlogLevel, char* text, std::size_t length) {
    static_cast<std::string*>(data)->append(text, length);
  };
  CUlogsCallbackHandle handle = nullptr;
  ASSERT_EQ(register_reader(reader, &said, &handle), CUDA_SUCCESS);
  EXPECT_EQ(launch("empty", nullptr, nullptr, 1, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(said.find("empty"), std::string::npos) << said;
  EXPECT_NE(said.find("(1025,1,1)"), std::string::npos) << said;
  EXPECT_EQ(unregister(handle), CUDA_SUCCESS);
  EXPECT_EQ(unregister(handle), CUDA_ERROR_INVALID_VALUE);
  said.clear();
  EXPECT_EQ(launch("empty", nullptr, nullptr, 1, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(said, "");
#else
  GTEST_SKIP() << "cuLogsRegisterCallback came with CUDA 12.9";
#endif
}

TEST(SoftwareDevices, ZeroDevicesIsNoDevice) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    setenv("CTXBROKER_SOFTWARE_DEVICES", "0", 1);
    EXPECT_EQ(driver().cuInit(0), CUDA_ERROR_NO_DEVICE);
    int count = 0;
    EXPECT_EQ(driver().cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
  });
}

TEST(SoftwareDevices, NonsenseDeviceCountLeavesOneDevice) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    setenv("CTXBROKER_SOFTWARE_DEVICES", "many", 1);
    EXPECT_EQ(driver().cuInit(0), CUDA_SUCCESS);
    int count = 0;
    EXPECT_EQ(driver().cuDeviceGetCount(&count), CUDA_SUCCESS);
    EXPECT_EQ(count, 1);
  });
}

// Two devices: events order work across them, peer copies cross them, a fault ends both.
TEST(SoftwareDevices, SeveralDevicesShareEventsCopiesAndFaults) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    setenv("CTXBROKER_SOFTWARE_DEVICES", "2", 1);
    const Driver& d = driver();
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    CUcontext contexts[2] = {};
    CUstream streams[2] = {};
    CUdeviceptr memory[2] = {};
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&contexts[i], i), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSetCurrent(contexts[i]), CUDA_SUCCESS);
      EXPECT_EQ(d.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemAlloc_v2(&memory[i], 4), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemsetD32_v2(memory[i], 0, 1), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    }
    EXPECT_NE(contexts[0], contexts[1]);
    int can = 0;
    EXPECT_EQ(d.cuDeviceCanAccessPeer(&can, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(can, 1);

    EXPECT_EQ(d.cuCtxSetCurrent(contexts[0]), CUDA_SUCCESS);
    CUevent written = nullptr;
    EXPECT_EQ(d.cuEventCreate(&written, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
    std::atomic<bool> let_go = false;
    auto wait = [](void* flag) {
      while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
    };
    EXPECT_EQ(d.cuLaunchHostFunc(streams[0], wait, &let_go), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemsetD32Async(memory[0], 99, 1, streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(d.cuEventRecord(written, streams[0]), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamWaitEvent(streams[1], written, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemcpyPeerAsync(memory[1], contexts[1], memory[0], contexts[0], 4, streams[1]),
              CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamQuery(streams[1]), CUDA_ERROR_NOT_READY);
    let_go = true;
    EXPECT_EQ(d.cuStreamSynchronize(streams[1]), CUDA_SUCCESS);
    unsigned value = 0;
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, memory[1], 4), CUDA_SUCCESS);
    EXPECT_EQ(value, 99u);

    CUmodule module = nullptr;
    CUfunction crash = nullptr;
    EXPECT_EQ(d.cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleGetFunction(&crash, module, "crash"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuLaunchKernel(crash, 1, 1, 1, 1, 1, 1, 0, streams[0], nullptr, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(streams[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(d.cuCtxSetCurrent(contexts[1]), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAlloc_v2(&memory[1], 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST(SoftwareDeviceExit, DoesNotWaitForEverLastingWork) {
  CTXB_REQUIRE_DEVICE();
  auto begin = std::chrono::steady_clock::now();
  expect_in_child([] {
    const Driver& d = driver();
    CUcontext primary = nullptr;
    CUmodule module = nullptr;
    CUfunction hold = nullptr;
    void* flag = nullptr;
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuCtxSetCurrent(primary), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleLoadData(&module, kernels_ptx), CUDA_SUCCESS);
    EXPECT_EQ(d.cuModuleGetFunction(&hold, module, "hold"), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAllocHost_v2(&flag, 4), CUDA_SUCCESS);
    *static_cast<unsigned*>(flag) = 0;
    void* arguments[] = {&flag};
    EXPECT_EQ(d.cuLaunchKernel(hold, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr),
              CUDA_SUCCESS);
    CUstream other = nullptr;
    EXPECT_EQ(d.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    auto for_ever = [](void*) {
      while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
    };
    EXPECT_EQ(d.cuLaunchHostFunc(other, for_ever, nullptr), CUDA_SUCCESS);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

void end_thread(void*) {
  pthread_exit(nullptr);
}
void count_calls(void* counter) {
  ++*static_cast<std::atomic<int>*>(counter);
}

// A host function may not do that, and the callbacks of others still come.
TEST_F(SoftwareDeviceTest, HostFunctionsThatEndTheirThreadHoldUpNothing) {
  std::atomic<int> calls{0};
  CUstream stream = nullptr, other = nullptr;
  ASSERT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(d.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  for (const CUhostFn careless : {end_thread, end_thread, end_thread}) {
    ASSERT_EQ(d.cuLaunchHostFunc(stream, careless, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(d.cuLaunchHostFunc(stream, count_calls, &calls), CUDA_SUCCESS);
    ASSERT_EQ(d.cuLaunchHostFunc(other, count_calls, &calls), CUDA_SUCCESS);
  }
  EXPECT_EQ(d.cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(calls, 6);
  EXPECT_EQ(d.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(d.cuStreamDestroy_v2(other), CUDA_SUCCESS);
}

TEST_F(SoftwareDeviceTest, ATextThatAsksForTooMuchIsRefusedByTheNameOfTheLimit) {
  std::string text = ".version 8.0\n.target sm_75\n.address_size 64\n.func f40() {}\n";
  for (int i = 39; i >= 0; --i) {
    const std::string callee = "call f" + std::to_string(i + 1) + "; ";
    text += ".func f" + std::to_string(i) + "() { " + callee + callee + "}\n";
  }
  text += ".entry k() { call f0; ret; }\n";
  char log[1024] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};  // NOLINT(performance-no-int-to-ptr)
  CUmodule loaded = nullptr;
  EXPECT_EQ(d.cuModuleLoadDataEx(&loaded, text.c_str(), 2, options, values),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::string(log).find("the limit module_steps"), std::string::npos) << log;
}

// Each part has less than the limit.
TEST_F(SoftwareDeviceTest, PartsOfALinkedImageShareItsLimits) {
  const auto part = [](int number) {
    std::string text =
        ".version 8.0\n.target sm_75\n.address_size 64\n.func f0() {\n.reg .b32 a;\n";
    for (int i = 0; i < 28; ++i) text += "mov.u32 a, %clock;\n";
    text += "ret; }\n";
    for (int i = 1; i < 16; ++i) {
      const std::string callee = "call f" + std::to_string(i - 1) + "; ";
      text += ".func f" + std::to_string(i) + "() { " + callee + callee + "ret; }\n";
    }
    return text + ".visible .entry k" + std::to_string(number) + "() { call f15; ret; }\n";
  };
  CUlinkState state = nullptr;
  ASSERT_EQ(d.cuLinkCreate_v2(0, nullptr, nullptr, &state), CUDA_SUCCESS);
  const auto add = [&](int number) {
    std::string text = part(number);
    return d.cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "part", 0,
                              nullptr, nullptr);
  };
  EXPECT_EQ(add(0), CUDA_SUCCESS) << "the control";
  CUresult status = CUDA_SUCCESS;
  for (int number = 1; number < 4 && status == CUDA_SUCCESS; ++number) status = add(number);
  EXPECT_EQ(status, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(d.cuLinkDestroy(state), CUDA_SUCCESS);
}

TEST_F(SoftwareDeviceTest, VariablesThatNothingUsesTakeNoneOfTheMachinesMemory) {
  const auto resident_pages = [] {
    std::uint64_t all = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident;
  };
  std::string text = ".version 8.0\n.target sm_75\n.address_size 64\n";
  for (int i = 0; i < 60; ++i) {
    text += ".visible .global .align 8 .b8 x" + std::to_string(i) + "[67000000];\n";
  }
  const std::uint64_t before = resident_pages();
  CUmodule loaded = nullptr;
  ASSERT_EQ(d.cuModuleLoadData(&loaded, text.c_str()), CUDA_SUCCESS);
  EXPECT_LT(resident_pages(), before + (std::uint64_t{100} << 20) / 4096);
  EXPECT_EQ(d.cuModuleUnload(loaded), CUDA_SUCCESS);
}

// A variable takes the device's memory, and the machine's only where something uses it.
TEST_F(SoftwareDeviceTest, ALargeVariableIsZeroBehindItsInitialValues) {
  const std::string text =
      ".version 8.0\n.target sm_75\n.address_size 64\n"
      ".visible .global .align 8 .b8 g[1073741824] = {7};\n.entry k() { ret; }\n";
  for (int time = 0; time < 2; ++time) {
    CUmodule loaded = nullptr;
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    ASSERT_EQ(d.cuModuleLoadData(&loaded, text.c_str()), CUDA_SUCCESS);
    ASSERT_EQ(d.cuModuleGetGlobal_v2(&address, &bytes, loaded, "g"), CUDA_SUCCESS);
    EXPECT_EQ(bytes, std::size_t{1} << 30);
    std::vector<unsigned char> first(8192, 1), last(8192, 1);
    ASSERT_EQ(d.cuMemcpyDtoH_v2(first.data(), address, first.size()), CUDA_SUCCESS);
    ASSERT_EQ(d.cuMemcpyDtoH_v2(last.data(), address + bytes - last.size(), last.size()),
              CUDA_SUCCESS);
    EXPECT_EQ(first[0], 7);
    first[0] = 0;
    EXPECT_EQ(first, std::vector<unsigned char>(8192, 0));
    EXPECT_EQ(last, std::vector<unsigned char>(8192, 0));
    ASSERT_EQ(d.cuModuleUnload(loaded), CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace ctxbroker::test
