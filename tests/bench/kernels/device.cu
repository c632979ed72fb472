// SPDX-License-Identifier: Apache-2.0
// The kernels of bench_kernels. plain.cpp computes the same.
#include <cuda_fp16.h>

namespace {
constexpr int tile = 16;
__device__ int clamp_to(int value, int size) {
  return min(max(value, 0), size - 1);
}

template <typename T>
__device__ void blur(const T* in, T* out, int width, int height) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  T sum = T(0.0f);
  for (int dy = -2; dy <= 2; ++dy) {
    const T* row = in + clamp_to(y + dy, height) * width;
    for (int dx = -2; dx <= 2; ++dx) sum += row[clamp_to(x + dx, width)];
  }
  out[y * width + x] = sum * T(0.04f);
}
}  // namespace

extern "C" __global__ void vector_add(const float* a, const float* b, float* out, int size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) out[i] = a[i] + b[i];
}

extern "C" __global__ void powers(const float* a, const float* b, float* out, int size) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) out[i] = powf(a[i], b[i]);
}

extern "C" __global__ void blur_float(const float* in, float* out, int width, int height) {
  blur(in, out, width, height);
}

extern "C" __global__ void blur_half(const __half* in, __half* out, int width, int height) {
  blur(in, out, width, height);
}

extern "C" __global__ void fir(const float* in, const float* taps, float* out, int size,
                               int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= size) return;
  float sum = 0;
  for (int t = 0; t < count; ++t) sum += taps[t] * in[i + t];
  out[i] = sum;
}

extern "C" __global__ void matrix_global(const float* a, const float* b, float* out, int size) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < size; ++k) sum += a[row * size + k] * b[k * size + column];
  out[row * size + column] = sum;
}

extern "C" __global__ void matrix_shared(const float* a, const float* b, float* out, int size) {
  __shared__ float left[tile][tile], right[tile][tile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int column = blockIdx.x * tile + x, row = blockIdx.y * tile + y;
  float sum = 0;
  for (int at = 0; at < size; at += tile) {
    left[y][x] = a[row * size + at + x];
    right[y][x] = b[(at + y) * size + column];
    __syncthreads();
    for (int k = 0; k < tile; ++k) sum += left[y][k] * right[k][x];
    __syncthreads();
  }
  out[row * size + column] = sum;
}
