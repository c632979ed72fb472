// SPDX-License-Identifier: Apache-2.0
// One software device: its executor, its memory budget, its primary context.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "api/context.hpp"
#include "api/cuda_api.hpp"
#include "api/executor.hpp"
#include "api/memory_pool.hpp"
#include "api/settings.hpp"
#include "exec/execute.hpp"

namespace ctxbroker::software {

// What the device says it is, beside the settings. The rest of the attributes is in
// device_attributes.cpp.
namespace device_limits {
inline constexpr unsigned max_threads = 1024;  // per block, and per multiprocessor
inline constexpr unsigned max_block[3] = {1024, 1024, 64};
inline constexpr unsigned max_grid[3] = {2147483647, 65535, 65535};
inline constexpr unsigned max_blocks_per_multiprocessor = 16;
inline constexpr unsigned shared_per_block = 48 * 1024;        // bytes, without opting in
inline constexpr unsigned shared_per_block_optin = 64 * 1024;  // bytes
inline constexpr std::size_t alignment = 512;                  // bytes, of allocations and pitches
inline constexpr unsigned max_array_1d = 131072;               // elements, as the following
inline constexpr unsigned max_array_2d[2] = {131072, 65536};
inline constexpr unsigned max_array_3d = 16384;  // each way
inline constexpr int least_priority = 0, greatest_priority = -5;
}  // namespace device_limits

class Device {
 public:
  Device(int ordinal, const Settings& settings);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const int ordinal;
  const Settings settings;
  std::atomic<std::size_t> used = 0;  // bytes of its memory
  Executor executor;
  // Held while a private context is made or ended. NVIDIA's driver makes none while it ends one.
  std::mutex making_or_ending;

  // Of the calling thread's lane: only on a thread that executes a kernel.
  exec::WorkerPool& pool();

  // The primary context. `retain` brings it to life; the count of retains outlives a reset.
  Context& retain_primary();
  // CUDA_ERROR_INVALID_CONTEXT when nothing is retained. A green context keeps the primary alive:
  // the last release counts and returns CUDA_ERROR_NOT_PERMITTED while there is one.
  CUresult release_primary();
  CUresult reset_primary();  // the same refusal
  // Retains the primary too; destroying gives that back, unless others released it meanwhile.
  Context& create_green(const MultiprocessorSet& multiprocessors);
  CUresult destroy_green(Context& context);
  // Ends the primary as a reset does, whatever green contexts there are.
  void lose_primary();
  struct PrimaryState {
    unsigned flags = 0;
    bool active = false;
  };
  PrimaryState primary_state();
  void set_primary_flags(unsigned flags);
  // The primary's present or last life; null if there never was one.
  Context* primary() const noexcept { return primary_.load(std::memory_order_acquire); }
  CUcontext primary_handle() const noexcept;

  // Pools of the stream-ordered allocator: the one that is always there, and the one that is used
  // unless an allocation names another.
  std::shared_ptr<MemoryPool> default_pool();
  std::shared_ptr<MemoryPool> current_pool();
  void set_current_pool(const std::shared_ptr<MemoryPool>& pool);
  void forget_pool(const MemoryPool& pool);  // the current one: the default becomes it

  // Takes bytes of the budget; false when they are not there.
  bool reserve(std::size_t bytes) noexcept;
  void give_back(std::size_t bytes) noexcept { used -= bytes; }

 private:
  // With primary_mutex_ held.
  Context& retain_locked();
  CUresult release_locked();
  void end_primary();

  std::array<std::unique_ptr<exec::WorkerPool>, Executor::most_lanes> pools_;  // by lane
  std::mutex primary_mutex_;
  std::atomic<Context*> primary_ = nullptr;
  std::vector<std::unique_ptr<Context>> primary_lives_;
  unsigned primary_retains_ = 0;
  unsigned green_contexts_ = 0;  // alive
  unsigned primary_flags_ = 0;

  std::mutex pools_mutex_;
  std::shared_ptr<MemoryPool> default_pool_, current_pool_;  // null: not asked for yet; the default
};

// The device of an ordinal; CUDA_ERROR_INVALID_DEVICE.
Device& find_device(CUdevice ordinal);
bool is_device(CUdevice ordinal);

// Of all devices: 75 is 7.5.
int compute_capability() noexcept;

}  // namespace ctxbroker::software
