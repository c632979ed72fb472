// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/launch_shape.hpp>

#include "runtime.hpp"
#include "tone.hpp"

namespace ctxbroker::sample {
namespace {

__global__ void store_kernel(Matrix4 matrix, float* where) {
  where[threadIdx.x] = matrix.values[threadIdx.x];
}

// Light below 0 keeps its sign. A lift of 0 and an exponent of 1 change nothing.
__device__ float toned(float value, float lift, float exponent) {
  const float light = lift == 0.0f ? value : value + lift * (1 - value);
  return exponent == 1.0f ? light : copysignf(powf(fabsf(light), exponent), light);
}

__global__ void tone_kernel(sdk::ImageView image, float lift, float exponent) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= image.width) return;
  for (unsigned y = blockIdx.y * blockDim.y + threadIdx.y; y < image.height;
       y += gridDim.y * blockDim.y) {
    float4 pixel = image.row(y)[x];
    pixel.x = toned(pixel.x, lift, exponent);
    pixel.y = toned(pixel.y, lift, exponent);
    pixel.z = toned(pixel.z, lift, exponent);
    image.row(y)[x] = pixel;
  }
}

}  // namespace

void store(const Matrix4& matrix, float* where, cudaStream_t stream) {
  store_kernel<<<1, 16, 0, stream>>>(matrix, where);
  check(cudaGetLastError(), "launching store");
}

void tone(const sdk::ImageView& image, float lift, float gamma, cudaStream_t stream) {
  const sdk::LaunchShape shape = sdk::over(image.width, image.height);
  const dim3 blocks(shape.grid.x, shape.grid.y);
  const dim3 threads(shape.block.x, shape.block.y);
  tone_kernel<<<blocks, threads, 0, stream>>>(image, lift, 1 / gamma);
  check(cudaGetLastError(), "launching tone");
}

}  // namespace ctxbroker::sample
