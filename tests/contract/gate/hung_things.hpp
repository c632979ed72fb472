// SPDX-License-Identifier: Apache-2.0
// Things of every kind whose end may wait for work on the device, and a capture.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <future>
#include <thread>

#include "ctxbroker/broker.hpp"
#include "support/driver_by_name.hpp"
#include "support/kernels.hpp"

namespace ctxbroker {

struct Things {
  alignas(4096) std::array<char, 4096> pages{};
  void* pinned = nullptr;
  CUarray array = nullptr;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr range = 0;
  CUmemGenericAllocationHandle physical = 0;
  static constexpr std::size_t granule = std::size_t{2} << 20;

  void make() {
    EXPECT_EQ(driver_call("cuMemAllocHost_v2", &pinned, std::size_t{4096}), CUDA_SUCCESS);
    EXPECT_EQ(
        driver_call("cuMemHostRegister_v2", static_cast<void*>(pages.data()), pages.size(), 0U),
        CUDA_SUCCESS);
    const CUDA_ARRAY_DESCRIPTOR shape{16, 16, CU_AD_FORMAT_FLOAT, 1};
    EXPECT_EQ(driver_call("cuArrayCreate_v2", &array, &shape), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuModuleLoadData", &module, static_cast<const void*>(hold_ptx)),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamCreate", &stream, 1U), CUDA_SUCCESS);
    CUmemAllocationProp place{};
    place.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    place.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    EXPECT_EQ(
        driver_call("cuMemAddressReserve", &range, granule, std::size_t{0}, CUdeviceptr{0}, 0ULL),
        CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemCreate", &physical, granule,
                          static_cast<const CUmemAllocationProp*>(&place), 0ULL),
              CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemMap", range, granule, std::size_t{0}, physical, 0ULL),
              CUDA_SUCCESS);
  }
  void end() {
    EXPECT_EQ(driver_call("cuMemFreeHost", pinned), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemHostUnregister", static_cast<void*>(pages.data())), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuArrayDestroy", array), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuModuleUnload", module), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuStreamDestroy_v2", stream), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemUnmap", range, granule), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemRelease", physical), CUDA_SUCCESS);
    EXPECT_EQ(driver_call("cuMemAddressFree", range, granule), CUDA_SUCCESS);
  }
};

// A capture of the tenant that is open on another thread.
class CaptureElsewhere {
 public:
  explicit CaptureElsewhere(Tenant& tenant) {
    thread_ = std::thread([this, &tenant] {
      tenant.run(0, [&] {
        CUgraph graph = nullptr;
        CUstream const stream = tenant.create_stream();
        EXPECT_EQ(
            driver_call("cuStreamBeginCapture_v2", stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
        begun_.set_value();
        over_.get_future().wait();
        EXPECT_EQ(driver_call("cuStreamEndCapture", stream, &graph), CUDA_SUCCESS);
      });
    });
    begun_.get_future().wait();
  }
  ~CaptureElsewhere() {
    over_.set_value();
    thread_.join();
  }
  CaptureElsewhere(const CaptureElsewhere&) = delete;
  CaptureElsewhere& operator=(const CaptureElsewhere&) = delete;

 private:
  std::promise<void> begun_, over_;
  std::thread thread_;
};

}  // namespace ctxbroker
