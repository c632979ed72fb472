// SPDX-License-Identifier: Apache-2.0
// Pinned host memory that the broker cuts up itself.
//
// The driver's cuMemHostAlloc holds up all work of the process for milliseconds, and its
// cuMemFreeHost waits for all work. Host memory that is made with cuMemCreate and mapped does
// neither, and copies, memsets and kernels use it in the same way. Only a memset must not cross
// from one such memory to the next, so each block lies within one.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "context/memory_pool.hpp"
#include "context/segments.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

class PinnedArena final : public MemoryPool {
 public:
  // Makes an arena near `device`. All `devices` get access to its memory, as to memory of
  // cuMemHostAlloc. Takes `ahead` bytes at once, and keeps them until its end; if the driver has
  // too little memory, it takes none. Returns null if the driver makes no such memory for one of
  // the devices.
  static std::shared_ptr<MemoryPool> make(const DriverTable& driver, CUdevice device,
                                          const std::vector<CUdevice>& devices,
                                          std::uint64_t ahead) noexcept;

  PinnedArena(const PinnedArena&) = delete;
  PinnedArena& operator=(const PinnedArena&) = delete;

  const char* what() const noexcept override { return "pinned host memory"; }
  bool is_of_host() const noexcept override { return true; }
  CUresult allocate(CUdeviceptr* out, std::uint64_t bytes) noexcept override;
  CUresult find_pitch_unit(std::uint64_t*) noexcept override { return CUDA_ERROR_NOT_SUPPORTED; }
  CUresult free(CUdeviceptr address) noexcept override;
  CUresult open_to(CUdevice) noexcept override { return CUDA_SUCCESS; }
  std::uint64_t unused() noexcept override;
  bool keeps_unused() noexcept override;
  std::uint64_t frees() noexcept override;
  bool trim(std::uint64_t frees) noexcept override;
  void keep_nothing() noexcept override;
  CUresult end() noexcept override;
  void end_without_context() noexcept override { end(); }

 private:
  explicit PinnedArena(const DriverTable& driver) : driver_(driver) {}
  CUresult map(std::uint64_t bytes, CUdeviceptr* out) const noexcept;
  void unmap(const Segments::Range& segment) const noexcept;
  void take_ahead(std::uint64_t bytes);
  CUresult grow(CUdeviceptr* out, std::uint64_t bytes) noexcept;
  bool unmap_unused(std::unique_lock<std::mutex> lock) noexcept;

  const DriverTable driver_;  // the broker's may end before the arena
  CUmemAllocationProp properties_{};
  std::vector<CUmemAccessDesc> access_;
  std::size_t unit_ = 0;  // bytes
  std::mutex mutex_;      // of what follows. No driver call is made under it
  Segments segments_;
  std::uint64_t frees_ = 0;
  bool keeps_nothing_ = false;
};

}  // namespace ctxbroker::detail
