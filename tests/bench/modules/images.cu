// SPDX-License-Identifier: Apache-2.0
// Kernels in number, so that an image has some size.

template <int number>
__device__ float worked(float value) {
#pragma unroll
  for (int i = 0; i < 64; ++i) value = fmaf(value, 0.5f + number, 1.0f + i * number);
  return value;
}

#define KERNEL(number)                                         \
  extern "C" __global__ void kernel_##number(float* values) {  \
    values[threadIdx.x] = worked<number>(values[threadIdx.x]); \
  }
// clang-format off
#define EIGHT(tens) \
  KERNEL(tens##0) KERNEL(tens##1) KERNEL(tens##2) KERNEL(tens##3) \
  KERNEL(tens##4) KERNEL(tens##5) KERNEL(tens##6) KERNEL(tens##7)
// clang-format on

EIGHT(1)
EIGHT(2)
EIGHT(3)
EIGHT(4)
EIGHT(5)
EIGHT(6)
EIGHT(7)
EIGHT(8)
