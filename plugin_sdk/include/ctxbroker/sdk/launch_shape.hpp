// How many blocks and threads a launch has.
#pragma once

#include <cstdint>

namespace ctxbroker::sdk {

struct Extent3 {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
};

struct LaunchShape {
  Extent3 grid;                    // blocks
  Extent3 block;                   // threads in each
  std::uint32_t shared_bytes = 0;  // dynamic shared memory of each block; the host opts in
                                   // above 48 KiB

  // What needs a host with CTXB_EXT_LAUNCH:
  Extent3 cluster{0, 0, 0};   // blocks that share their shared memory (compute capability 9.0)
  std::uint32_t flags = 0;    // CTXB_LAUNCH_*
  std::int32_t priority = 0;  // with CTXB_LAUNCH_PRIORITY; a lower number goes first
};

namespace detail {

inline constexpr std::uint32_t max_grid_y = 65535;  // of every CUDA device

constexpr std::uint32_t blocks_for(std::uint32_t items, std::uint32_t per_block) {
  return items == 0 ? 1 : (items - 1) / per_block + 1;
}

constexpr std::uint32_t at_most(std::uint32_t value, std::uint32_t limit) {
  return value < limit ? value : limit;
}

}  // namespace detail

// 256 threads a block over `columns` times `rows` items, in rows as wide as the data allows. The
// grid has a limit in y: let the kernel stride,
//   for (y = blockIdx.y * blockDim.y + threadIdx.y; y < height; y += gridDim.y * blockDim.y)
// and check x against the width.
constexpr LaunchShape over(std::uint32_t columns, std::uint32_t rows) {
  std::uint32_t wide = 32;
  while (wide < 256 && wide < columns) {
    wide *= 2;
  }
  const std::uint32_t tall = 256 / wide;
  return {{detail::blocks_for(columns, wide),
           detail::at_most(detail::blocks_for(rows, tall), detail::max_grid_y), 1},
          {wide, tall, 1}};
}

}  // namespace ctxbroker::sdk
