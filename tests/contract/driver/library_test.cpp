// SPDX-License-Identifier: Apache-2.0
// Libraries: programs of no context, placed in each where they are used.
#include <string>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

class LibraryTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ASSERT_EQ(load(&library), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (library != nullptr) {
      EXPECT_EQ(d.cuLibraryUnload(library), CUDA_SUCCESS);
    }
    DriverTest::TearDown();
  }
  CUresult load(CUlibrary* loaded, const void* image = kernels_ptx) const {
    return d.cuLibraryLoadData(loaded, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  }
  CUkernel kernel(const char* name) const {
    CUkernel found = nullptr;
    EXPECT_EQ(d.cuLibraryGetKernel(&found, library, name), CUDA_SUCCESS) << name;
    return found;
  }
  unsigned counter() const {
    CUdeviceptr address = 0;
    std::size_t bytes = 0;
    unsigned value = 0;
    EXPECT_EQ(d.cuLibraryGetGlobal(&address, &bytes, library, "counter"), CUDA_SUCCESS);
    EXPECT_EQ(bytes, sizeof value);
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, sizeof value), CUDA_SUCCESS);
    return value;
  }
  CUresult launch(CUfunction function) const {
    return d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  }

  CUlibrary library = nullptr;
};

TEST_F(LibraryTest, IsLoadedWithoutAContext) {
  CUlibrary other = nullptr;
  CUkernel found = nullptr;
  ASSERT_EQ(d.cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(load(&other), CUDA_SUCCESS);
  EXPECT_EQ(d.cuLibraryGetKernel(&found, other, "bump"), CUDA_SUCCESS);
  CUfunction function = nullptr;
  CUmodule module = nullptr;
  EXPECT_EQ(d.cuKernelGetFunction(&function, found), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuLibraryGetModule(&module, other), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(d.cuLibraryUnload(other), CUDA_SUCCESS);
}

TEST_F(LibraryTest, IsPlacedInEachContextOnItsOwn) {
  EXPECT_EQ(counter(), 7u);
  CUfunction function = nullptr, again = nullptr;
  ASSERT_EQ(d.cuKernelGetFunction(&function, kernel("bump")), CUDA_SUCCESS);
  EXPECT_EQ(launch(function), CUDA_SUCCESS);
  EXPECT_EQ(counter(), 8u);
  EXPECT_EQ(launch(reinterpret_cast<CUfunction>(kernel("bump"))), CUDA_SUCCESS)
      << "a kernel stands for its function in the stream's context";
  EXPECT_EQ(counter(), 9u);
  EXPECT_EQ(d.cuKernelGetFunction(&again, kernel("bump")), CUDA_SUCCESS);
  EXPECT_EQ(again, function);

  CUcontext other = nullptr, popped = nullptr;
  ASSERT_EQ(d.cuCtxCreate_v2(&other, 0, device), CUDA_SUCCESS);
  EXPECT_EQ(counter(), 7u) << "its own variable";
  EXPECT_EQ(launch(reinterpret_cast<CUfunction>(kernel("bump"))), CUDA_SUCCESS);
  EXPECT_EQ(counter(), 8u);
  CUfunction there = nullptr;
  EXPECT_EQ(d.cuKernelGetFunction(&there, kernel("bump")), CUDA_SUCCESS);
  EXPECT_NE(there, function);
  EXPECT_EQ(d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  EXPECT_EQ(counter(), 9u);
  EXPECT_EQ(d.cuCtxDestroy_v2(other), CUDA_SUCCESS);
  EXPECT_EQ(counter(), 9u);
}

TEST_F(LibraryTest, OwnsItsModules) {
  CUmodule module = nullptr, again = nullptr;
  CUfunction function = nullptr;
  ASSERT_EQ(d.cuLibraryGetModule(&module, library), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleGetFunction(&function, module, "empty"), CUDA_SUCCESS);
  EXPECT_EQ(launch(function), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleUnload(module), CUDA_ERROR_NOT_PERMITTED);
  EXPECT_EQ(d.cuLibraryGetModule(&again, library), CUDA_SUCCESS);
  EXPECT_EQ(again, module);
}

TEST_F(LibraryTest, TellsItsKernels) {
  unsigned count = 0, of_module = 0;
  CUmodule module = nullptr;
  EXPECT_EQ(d.cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
  ASSERT_EQ(d.cuLibraryGetModule(&module, library), CUDA_SUCCESS);
  EXPECT_EQ(d.cuModuleGetFunctionCount(&of_module, module), CUDA_SUCCESS);
  EXPECT_EQ(count, of_module);
  CUkernel first = nullptr, none = nullptr;
  EXPECT_EQ(d.cuLibraryEnumerateKernels(&first, 1, library), CUDA_SUCCESS);
  const char* name = nullptr;
  ASSERT_EQ(d.cuKernelGetName(&name, first), CUDA_SUCCESS);
  EXPECT_EQ(kernel(name), first);
  std::size_t offset = 9, bytes = 0;
  EXPECT_EQ(d.cuKernelGetParamInfo(kernel("fill"), 1, &offset, &bytes), CUDA_SUCCESS);
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(d.cuKernelGetParamInfo(kernel("fill"), 3, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuLibraryGetKernel(&none, library, "nope"), CUDA_ERROR_NOT_FOUND);
  CUdeviceptr address = 0;
  EXPECT_EQ(d.cuLibraryGetGlobal(&address, &bytes, library, "nope"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(d.cuLibraryGetManaged(&address, &bytes, library, "counter"), CUDA_ERROR_NOT_FOUND);
#if CUDA_VERSION >= 12050
  CUlibrary of = nullptr;
  EXPECT_EQ(d.cuKernelGetLibrary(&of, first), CUDA_SUCCESS);
  EXPECT_EQ(of, library);
#endif
}

// An attribute that is set for a kernel holds for its functions until it is set for the function
// itself.
TEST_F(LibraryTest, HandsAttributesOnToFunctions) {
  CUkernel empty = kernel("empty");
  constexpr auto shared = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  CUfunction function = nullptr;
  ASSERT_EQ(d.cuKernelGetFunction(&function, empty), CUDA_SUCCESS);
  int value = 0;
  EXPECT_EQ(d.cuKernelGetAttribute(&value, shared, empty, device), CUDA_SUCCESS);
  EXPECT_EQ(value, 48 * 1024);
  auto launch_with = [&](unsigned bytes) {
    return d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, bytes, nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(launch_with(60 * 1024), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuKernelSetAttribute(shared, 60 * 1024, empty, device), CUDA_SUCCESS);
  EXPECT_EQ(launch_with(60 * 1024), CUDA_SUCCESS);
  EXPECT_EQ(d.cuKernelSetAttribute(shared, 1 << 30, empty, device), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuKernelSetCacheConfig(empty, CU_FUNC_CACHE_PREFER_L1, device), CUDA_SUCCESS);
  EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(LibraryTest, LoadRefusesBadImagesAndMissingFiles) {
  CUlibrary none = nullptr;
  // A driver that loads lazily looks at it when something of it is asked for.
  if (load(&none, "this is no image") == CUDA_SUCCESS) {
    CUkernel kernel = nullptr;
    EXPECT_NE(d.cuLibraryGetKernel(&kernel, none, "empty"), CUDA_SUCCESS);
  }
  EXPECT_EQ(load(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(d.cuLibraryLoadFromFile(&none, "/nowhere/library.ptx", nullptr, nullptr, 0, nullptr,
                                    nullptr, 0),
            CUDA_ERROR_FILE_NOT_FOUND);
}

}  // namespace
}  // namespace ctxbroker::test
