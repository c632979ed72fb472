// SPDX-License-Identifier: Apache-2.0
// cuOccupancy*: how many blocks of a function would be resident at once, by the limits that the
// device's attributes state.
#include <algorithm>

#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/launch.hpp"
#include "api/library.hpp"

using namespace ctxbroker::software;

namespace {

// A library's kernel is looked at in the current context.
std::shared_ptr<Function> find_function(CUfunction handle) {
  if (kind_of(handle) != HandleKind::kernel) return Process::instance().functions.find(handle);
  return ctxbroker::software::find_function(handle, working_owner());
}

CUresult blocks_per_multiprocessor(int* blocks, CUfunction function, int block_size,
                                   std::size_t dynamic_shared) {
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    check_value(blocks != nullptr && block_size > 0);
    *blocks =
        static_cast<int>(active_blocks(*found, static_cast<unsigned>(block_size), dynamic_shared));
  });
}

// The block size with the most resident threads; of equals the largest.
CUresult best_block_size(int* grid_size, int* block_size, CUfunction function,
                         CUoccupancyB2DSize shared_of, std::size_t dynamic_shared,
                         int block_limit) {
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    check_value(grid_size != nullptr && block_size != nullptr);
    int most = static_cast<int>(found->max_threads());
    if (block_limit > 0) most = std::min(most, block_limit);
    int best_threads = 0, best_block = 0, best_blocks = 0;
    for (int size = most; size > 0; size = (size - 1) / 32 * 32) {
      std::size_t shared = shared_of != nullptr ? shared_of(size) : dynamic_shared;
      int blocks = static_cast<int>(active_blocks(*found, static_cast<unsigned>(size), shared));
      if (blocks * size <= best_threads) continue;
      best_threads = blocks * size;
      best_block = size;
      best_blocks = blocks;
    }
    *block_size = best_block;
    *grid_size = best_blocks * static_cast<int>(found->context.device.settings.multiprocessors);
  });
}

}  // namespace

CTXB_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                                 int block_size,
                                                                 std::size_t dynamic_shared) {
  CTXB_COUNT_CALL();
  return blocks_per_multiprocessor(blocks, function, block_size, dynamic_shared);
}

CTXB_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, CUfunction function, int block_size, std::size_t dynamic_shared,
    unsigned int flags) {
  CTXB_COUNT_CALL();
  if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  return blocks_per_multiprocessor(blocks, function, block_size, dynamic_shared);
}

CTXB_EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int* grid_size, int* block_size,
                                                      CUfunction function,
                                                      CUoccupancyB2DSize shared_of,
                                                      std::size_t dynamic_shared, int block_limit) {
  CTXB_COUNT_CALL();
  return best_block_size(grid_size, block_size, function, shared_of, dynamic_shared, block_limit);
}

CTXB_EXPORT CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(
    int* grid_size, int* block_size, CUfunction function, CUoccupancyB2DSize shared_of,
    std::size_t dynamic_shared, int block_limit, unsigned int flags) {
  CTXB_COUNT_CALL();
  if (flags > CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE) return CUDA_ERROR_INVALID_VALUE;
  return best_block_size(grid_size, block_size, function, shared_of, dynamic_shared, block_limit);
}

// With that much dynamic shared memory each, so many blocks are resident at once.
CTXB_EXPORT CUresult cuOccupancyAvailableDynamicSMemPerBlock(std::size_t* bytes,
                                                             CUfunction function, int blocks,
                                                             int block_size) {
  CTXB_COUNT_CALL();
  return working([&] {
    std::shared_ptr<Function> found = find_function(function);
    check_value(bytes != nullptr && blocks > 0 && block_size > 0);
    std::size_t share = device_limits::shared_per_block_optin / static_cast<unsigned>(blocks);
    std::size_t taken = found->kernel.static_shared_bytes;
    // No more than the function may use at all.
    *bytes = std::min(share - std::min(share, taken),
                      static_cast<std::size_t>(found->max_dynamic_shared()));
  });
}
