// SPDX-License-Identifier: Apache-2.0
// Helpers of the tests of tenants' stores: where memory comes from, and what waits for work.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "ctxbroker/broker.hpp"
#include "support/raw_driver.hpp"

namespace ctxbroker {

inline bool has_memory_pools(const RawDriver& raw) {
  int pools = 0;
  raw.call("cuDeviceGetAttribute", &pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 0);
  return pools != 0;
}

// Returns whether device memory comes from one of the driver's pools.
inline bool is_of_a_pool(const RawDriver& raw, CUdeviceptr address) {
  CUmemoryPool pool = nullptr;
  EXPECT_EQ(raw.call("cuPointerGetAttribute", static_cast<void*>(&pool),
                     CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address),
            CUDA_SUCCESS);
  return pool != nullptr;
}

// Returns whether pinned memory comes from a store. Only the driver's own has a context.
inline bool is_of_an_arena(const RawDriver& raw, const void* address) {
  CUcontext context = nullptr;
  EXPECT_EQ(raw.call("cuPointerGetAttribute", static_cast<void*>(&context),
                     CU_POINTER_ATTRIBUTE_CONTEXT, reinterpret_cast<CUdeviceptr>(address)),
            CUDA_SUCCESS);
  return context == nullptr;
}

// Returns whether the driver knows memory at the address.
inline bool is_known(const RawDriver& raw, const void* address) {
  unsigned type = 0;
  return raw.call("cuPointerGetAttribute", static_cast<void*>(&type),
                  CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                  reinterpret_cast<CUdeviceptr>(address)) == CUDA_SUCCESS;
}

// Memory that waits for work which does not end. `what` is PutOffMetrics::what.
struct PutOffMemory {
  std::uint64_t count = 0, bytes = 0;
};
inline PutOffMemory put_off(const Broker& broker, const std::string& what) {
  PutOffMemory sum;
  for (const PutOffMetrics& one : broker.metrics().put_off) {
    if (one.what != what) continue;
    sum.count += one.count;
    sum.bytes += one.bytes;
  }
  return sum;
}

// Waits for at most 20 s.
template <typename Condition>
bool comes_true(Condition&& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace ctxbroker
