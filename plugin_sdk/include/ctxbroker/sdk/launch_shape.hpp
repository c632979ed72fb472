// SPDX-License-Identifier: Apache-2.0
/// @file
/// How many blocks and threads a launch has.
#pragma once

#include <cstdint>

#include "ctxbroker/sdk/local.hpp"

namespace ctxbroker::sdk {

/// A size in three dimensions.
struct Extent3 {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
};

/// How a kernel is launched. A host without CTXB_EXT_LAUNCH refuses a launch with one of the last
/// three members.
struct LaunchShape {
  Extent3 grid;   ///< Blocks.
  Extent3 block;  ///< Threads of a block.
  /// Dynamic shared memory of a block, in bytes. For more than 48 KiB, the host sets the kernel's
  /// attribute.
  std::uint32_t shared_bytes = 0;
  /// Blocks that share their shared memory. All 0: no clusters. Needs compute capability 9.0.
  Extent3 cluster{0, 0, 0};
  std::uint32_t flags = 0;    ///< CTXB_LAUNCH_*.
  std::int32_t priority = 0;  ///< With CTXB_LAUNCH_PRIORITY: a lower number goes first.
};

namespace detail {

CTXB_SDK_LOCAL inline constexpr std::uint32_t max_grid_y = 65535;  // of every CUDA device

constexpr std::uint32_t blocks_for(std::uint32_t items, std::uint32_t per_block) {
  return items == 0 ? 1 : (items - 1) / per_block + 1;
}

constexpr std::uint32_t at_most(std::uint32_t value, std::uint32_t limit) {
  return value < limit ? value : limit;
}

}  // namespace detail

/// Returns a shape for one thread per item, with at most 256 threads in a block.
///
/// With one row (audio, for example), the kernel only compares x with the width. It need not look
/// at y, because the threads have one row too.
///
/// With several rows, the threads can have more rows than that, and the grid has at most 65,535
/// blocks in y. The kernel therefore has to loop over its rows,
///
///     for (y = blockIdx.y * blockDim.y + threadIdx.y; y < height; y += gridDim.y * blockDim.y)
///
/// and to compare x with the width. Beyond 4,294,443,016 rows, y wraps: refuse so many in
/// activate.
///
/// @param columns  items in a row.
/// @param rows     rows.
[[nodiscard]] constexpr LaunchShape over(std::uint32_t columns, std::uint32_t rows) {
  std::uint32_t wide = 32;
  while (wide < 256 && wide < columns) {
    wide *= 2;
  }
  const std::uint32_t tall = detail::at_most(256 / wide, rows == 0 ? 1 : rows);
  return {{detail::blocks_for(columns, wide),
           detail::at_most(detail::blocks_for(rows, tall), detail::max_grid_y), 1},
          {wide, tall, 1}};
}

}  // namespace ctxbroker::sdk
