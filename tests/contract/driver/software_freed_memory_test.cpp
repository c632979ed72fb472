// SPDX-License-Identifier: Apache-2.0
// Copies and fills whose memory is freed before the device comes to them: an illegal address that
// ends CUDA for the process, as a kernel's would. Each test runs in a child process.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <tuple>

#include "driver.hpp"

namespace ctxbroker::test {
namespace {

constexpr std::size_t block_bytes = 4096;

// Memory on both of two devices, and a stream of the first one, kept busy until let go.
struct Busy {
  Busy() {
    setenv("CTXBROKER_SOFTWARE_DEVICES", "2", 1);
    EXPECT_EQ(d.cuInit(0), CUDA_SUCCESS);
    for (int i : {1, 0}) {
      EXPECT_EQ(d.cuDevicePrimaryCtxRetain(&primary[i], i), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSetCurrent(primary[i]), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemAlloc_v2(&memory[i], block_bytes), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemsetD8_v2(memory[i], 1, block_bytes), CUDA_SUCCESS);
      EXPECT_EQ(d.cuCtxSynchronize(), CUDA_SUCCESS);
    }
    EXPECT_EQ(d.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    auto wait = [](void* flag) {
      while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
    };
    EXPECT_EQ(d.cuLaunchHostFunc(stream, wait, &let_go), CUDA_SUCCESS);
  }
  CUresult finish() {
    let_go = true;
    return d.cuStreamSynchronize(stream);
  }
  CUresult finish_second() const {
    EXPECT_EQ(d.cuCtxSetCurrent(primary[1]), CUDA_SUCCESS);
    return d.cuCtxSynchronize();
  }
  unsigned char byte_at(CUdeviceptr address) const {
    unsigned char value = 0;
    EXPECT_EQ(d.cuMemcpyDtoH_v2(&value, address, 1), CUDA_SUCCESS);
    return value;
  }

  const Driver& d = driver();
  CUcontext primary[2] = {};
  CUdeviceptr memory[2] = {};
  CUstream stream = nullptr;
  std::atomic<bool> let_go = false;
};

CUmemLocation first_device() {
  CUmemLocation location = {};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return location;
}

// Something that the stream does with the second device's memory.
struct Work {
  const char* name;
  CUresult (*enqueue)(const Busy& busy, CUstream stream);
};

constexpr Work works[] = {
    {"Memset",
     [](const Busy& busy, CUstream stream) {
       return busy.d.cuMemsetD8Async(busy.memory[1], 3, block_bytes, stream);
     }},
    {"MemsetOfWords",
     [](const Busy& busy, CUstream stream) {
       return busy.d.cuMemsetD32Async(busy.memory[1], 3, block_bytes / 4, stream);
     }},
    {"CopyTo",
     [](const Busy& busy, CUstream stream) {
       return busy.d.cuMemcpyDtoDAsync_v2(busy.memory[1], busy.memory[0], block_bytes, stream);
     }},
    {"CopyFrom",
     [](const Busy& busy, CUstream stream) {
       return busy.d.cuMemcpyDtoDAsync_v2(busy.memory[0], busy.memory[1], block_bytes, stream);
     }},
    {"CopyFromPageable",
     [](const Busy& busy, CUstream stream) {
       static const char source[block_bytes] = {};
       return busy.d.cuMemcpyHtoDAsync_v2(busy.memory[1], source, block_bytes, stream);
     }},
    {"CopyOfRows",
     [](const Busy& busy, CUstream stream) {
       CUDA_MEMCPY2D rows = {};
       rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
       rows.srcDevice = busy.memory[0];
       rows.dstDevice = busy.memory[1];
       rows.srcPitch = rows.dstPitch = 256;
       rows.WidthInBytes = 32;
       rows.Height = 16;
       return busy.d.cuMemcpy2DAsync_v2(&rows, stream);
     }},
};

using Scene = std::tuple<Work, bool>;  // the work, and whether a graph does it

class SoftwareFreedMemory : public testing::TestWithParam<Scene> {
 protected:
  void SetUp() override { CTXB_REQUIRE_DEVICE(); }

  static void enqueue(const Busy& busy, const Scene& scene) {
    const auto& [work, in_graph] = scene;
    if (!in_graph) {
      EXPECT_EQ(work.enqueue(busy, busy.stream), CUDA_SUCCESS);
      return;
    }
    const Driver& d = busy.d;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    CUstream captured = nullptr;
    EXPECT_EQ(d.cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(work.enqueue(busy, captured), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamEndCapture(captured, &graph), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphLaunch(exec, busy.stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphDestroy(graph), CUDA_SUCCESS);
  }
};

TEST_P(SoftwareFreedMemory, FreeingMemoryOfTheOtherDeviceUnderWorkIsAFaultForAll) {
  expect_in_child([scene = GetParam()] {
    Busy busy;
    enqueue(busy, scene);
    EXPECT_EQ(busy.d.cuMemFree_v2(busy.memory[1]), CUDA_SUCCESS) << "it does not wait";
    EXPECT_EQ(busy.finish(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(busy.finish_second(), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST_P(SoftwareFreedMemory, DestroyingTheContextOfMemoryUnderWorkIsAFaultForAll) {
  expect_in_child([scene = GetParam()] {
    Busy busy;
    CUcontext own = nullptr, popped = nullptr;
    EXPECT_EQ(busy.d.cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(busy.d.cuMemAlloc_v2(&busy.memory[1], block_bytes), CUDA_SUCCESS);
    EXPECT_EQ(busy.d.cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
    enqueue(busy, scene);
    EXPECT_EQ(busy.d.cuCtxDestroy_v2(own), CUDA_SUCCESS) << "no kernel runs on its device";
    EXPECT_EQ(busy.finish(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(busy.finish_second(), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

TEST_P(SoftwareFreedMemory, FreeingMemoryAfterTheWorkIsNoFault) {
  expect_in_child([scene = GetParam()] {
    Busy busy;
    CUdeviceptr beside = 0;
    EXPECT_EQ(busy.d.cuMemAlloc_v2(&beside, block_bytes), CUDA_SUCCESS);
    enqueue(busy, scene);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      busy.let_go = true;
    });
    EXPECT_EQ(busy.d.cuMemFree_v2(beside), CUDA_SUCCESS) << "waits for its own device";
    EXPECT_EQ(busy.d.cuMemFree_v2(busy.memory[1]), CUDA_SUCCESS);
    EXPECT_EQ(busy.finish(), CUDA_SUCCESS);
    EXPECT_EQ(busy.finish_second(), CUDA_SUCCESS);
    later.join();
  });
}

TEST_P(SoftwareFreedMemory, FreeingMemoryThatTheWorkDoesNotUseIsNoFault) {
  expect_in_child([scene = GetParam()] {
    Busy busy;
    CUdeviceptr beside = 0;
    EXPECT_EQ(busy.d.cuCtxSetCurrent(busy.primary[1]), CUDA_SUCCESS);
    EXPECT_EQ(busy.d.cuMemAlloc_v2(&beside, block_bytes), CUDA_SUCCESS);
    EXPECT_EQ(busy.d.cuCtxSetCurrent(busy.primary[0]), CUDA_SUCCESS);
    enqueue(busy, scene);
    EXPECT_EQ(busy.d.cuMemFree_v2(beside), CUDA_SUCCESS);
    EXPECT_EQ(busy.finish(), CUDA_SUCCESS);
    EXPECT_EQ(busy.finish_second(), CUDA_SUCCESS);
  });
}

INSTANTIATE_TEST_SUITE_P(, SoftwareFreedMemory,
                         testing::Combine(testing::ValuesIn(works), testing::Bool()),
                         [](const testing::TestParamInfo<Scene>& scene) {
                           return std::string(std::get<0>(scene.param).name) +
                                  (std::get<1>(scene.param) ? "InAGraph" : "");
                         });

TEST(SoftwareFreedPinnedMemory, FreeingPinnedMemoryUnderACopyIsAFaultForAll) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    Busy busy;
    void* pinned = nullptr;
    EXPECT_EQ(busy.d.cuCtxSetCurrent(busy.primary[1]), CUDA_SUCCESS);
    EXPECT_EQ(busy.d.cuMemAllocHost_v2(&pinned, block_bytes), CUDA_SUCCESS);
    EXPECT_EQ(busy.d.cuMemcpyDtoHAsync_v2(pinned, busy.memory[0], block_bytes, busy.stream),
              CUDA_SUCCESS);
    EXPECT_EQ(busy.d.cuMemFreeHost(pinned), CUDA_SUCCESS);
    EXPECT_EQ(busy.finish(), CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_EQ(busy.finish_second(), CUDA_ERROR_ILLEGAL_ADDRESS);
  });
}

// A graph refers to memory by its address, so it goes on with other memory at the same address.
TEST(SoftwareRemappedMemory, RemappedMemoryUnderAGraphIsNoFault) {
  CTXB_REQUIRE_DEVICE();
  expect_in_child([] {
    Busy busy;
    const Driver& d = busy.d;
    constexpr std::size_t unit = std::size_t(2) << 20;
    CUdeviceptr place = 0;
    CUmemGenericAllocationHandle memory[2] = {};
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = first_device();
    const CUmemAccessDesc access = {first_device(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const auto map = [&](CUmemGenericAllocationHandle which) {
      EXPECT_EQ(d.cuMemMap(place, unit, 0, which, 0), CUDA_SUCCESS);
      EXPECT_EQ(d.cuMemSetAccess(place, unit, &access, 1), CUDA_SUCCESS);
    };
    EXPECT_EQ(busy.finish(), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemAddressReserve(&place, unit, 0, 0, 0), CUDA_SUCCESS);
    for (auto& one : memory) EXPECT_EQ(d.cuMemCreate(&one, unit, &properties, 0), CUDA_SUCCESS);
    map(memory[0]);
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    EXPECT_EQ(d.cuStreamBeginCapture_v2(busy.stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemsetD8Async(place, 5, unit, busy.stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamEndCapture(busy.stream, &graph), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(d.cuMemUnmap(place, unit), CUDA_SUCCESS);
    map(memory[1]);
    EXPECT_EQ(d.cuGraphLaunch(exec, busy.stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(busy.stream), CUDA_SUCCESS);
    EXPECT_EQ(busy.byte_at(place + unit - 1), 5);
    EXPECT_EQ(d.cuMemUnmap(place, unit), CUDA_SUCCESS);
    EXPECT_EQ(d.cuGraphLaunch(exec, busy.stream), CUDA_SUCCESS);
    EXPECT_EQ(d.cuStreamSynchronize(busy.stream), CUDA_ERROR_ILLEGAL_ADDRESS) << "now it is none";
  });
}

}  // namespace
}  // namespace ctxbroker::test
