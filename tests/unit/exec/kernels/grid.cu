// SPDX-License-Identifier: Apache-2.0
// Kernels whose blocks wait for each other.
#include <cooperative_groups.h>

#define KERNEL extern "C" __global__ void

namespace cg = cooperative_groups;

// In each round every block reads what its neighbours wrote in the one before.
KERNEL rounds(int* values, int* next, int count) {
  const cg::grid_group grid = cg::this_grid();
  const int blocks = gridDim.x, mine = blockIdx.x;
  for (int round = 0; round < count; ++round) {
    if (threadIdx.x == 0) {
      next[mine] = values[(mine + 1) % blocks] + values[(mine + blocks - 1) % blocks] + round;
    }
    grid.sync();
    int* swap = values;
    values = next;
    next = swap;
  }
}

KERNEL environment(unsigned* out) {
  asm volatile("mov.u32 %0, %%envreg2;" : "=r"(out[0]));
  asm volatile("mov.u32 %0, %%envreg1;" : "=r"(out[1]));
}

KERNEL shared_tile(int* out) {
  __shared__ int tile[1024];
  tile[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
