// SPDX-License-Identifier: Apache-2.0
// Device memory from one of the driver's own pools.
//
// The driver's cuMemFree waits until all work in the contexts that share the memory has ended, and
// holds up new work there meanwhile. The driver frees memory of a pool in the order of a stream
// instead.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "context/memory_pool.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

class HungWork;

class DevicePool final : public MemoryPool {
 public:
  // Makes a pool whose memory is taken in `primary`, the device's primary context. `owner` is
  // TenantIdentity::lasting_name. Returns null if the driver has no pools, or makes none in time.
  static std::shared_ptr<MemoryPool> make(const DriverTable& driver, CUcontext primary,
                                          CUdevice device, HungWork& family,
                                          const char* owner) noexcept;

  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  const char* what() const noexcept override { return "device memory"; }
  bool is_of_host() const noexcept override { return false; }
  CUresult allocate(CUdeviceptr* out, std::uint64_t bytes) noexcept override;
  CUresult find_pitch_unit(std::uint64_t* unit) noexcept override;
  CUresult free(CUdeviceptr address) noexcept override;
  CUresult open_to(CUdevice other) noexcept override;
  std::uint64_t unused() noexcept override;
  bool keeps_unused() noexcept override;
  std::uint64_t frees() noexcept override;
  bool trim(std::uint64_t frees) noexcept override;
  void keep_nothing() noexcept override;
  CUresult end() noexcept override;
  bool is_lost() noexcept override;
  void end_without_context() noexcept override;

 private:
  DevicePool(const DriverTable& driver, CUcontext primary, CUdevice device)
      : driver_(driver), primary_(primary), device_(device) {}
  CUresult open() noexcept;
  std::uint64_t bytes(CUmemPool_attribute which) const noexcept;
  bool is_of_this_pool(CUdeviceptr address) const noexcept;

  const DriverTable driver_;  // the broker's may end before the pool
  CUcontext const primary_;
  const CUdevice device_;
  CUmemoryPool pool_ = nullptr;
  CUstream stream_ = nullptr;  // in the primary; the pool allocates and frees in its order
  std::atomic<std::uint64_t> pitch_unit_{0};  // 0: not known yet
  std::mutex mutex_;                          // of frees and trims, and of what follows
  std::uint64_t frees_ = 0;
  std::unordered_set<CUdeviceptr> taken_;  // and not freed here
};

}  // namespace ctxbroker::detail
