// SPDX-License-Identifier: Apache-2.0
// Pinned memory that a tenant's code takes and frees, from an arena of the tenant's own or from the
// driver.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rules_fixture.hpp"
#include "store_support.hpp"

namespace ctxbroker {

inline void* pin(std::size_t bytes, unsigned flags = 0) {
  void* address = nullptr;
  EXPECT_EQ(driver_call("cuMemHostAlloc", &address, bytes, flags), CUDA_SUCCESS);
  return address;
}
inline CUresult unpin(void* address) {
  return driver_call("cuMemFreeHost", address);
}
inline char* chars_at(void* address) {
  return static_cast<char*>(address);
}
inline CUdeviceptr on_device(const void* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}

class PinnedStoreFixture : public RulesTest, public ::testing::WithParamInterface<LeaseKind> {
 protected:
  void SetUp() override {
    if (!broker.devices().front().pinned_pools) {
      GTEST_SKIP() << "the driver makes no host memory without addresses";
    }
  }
  Tenant open_with(const char* name, MemorySource source, std::uint64_t limit = 0) {
    TenantOptions options{LeaseChoice(GetParam())};
    options.memory = source;
    if (limit != 0) options.driver_limits.pinned_memory = limit;
    return broker.open_tenant(name, options);
  }
  bool is_stored(const void* address) const { return is_of_an_arena(raw, address); }
};

}  // namespace ctxbroker
