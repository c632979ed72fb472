// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

using ctxbroker::sdk::ImageView;

extern "C" __global__ void tint(ImageView in, ImageView out, float4 factor) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= out.width) {
    return;
  }
  // A grid has at most 65,535 rows, and an image may have more.
  for (unsigned y = blockIdx.y * blockDim.y + threadIdx.y; y < out.height;
       y += gridDim.y * blockDim.y) {
    float4 pixel = in.row(y)[x];
    pixel.x *= factor.x;
    pixel.y *= factor.y;
    pixel.z *= factor.z;
    out.row(y)[x] = pixel;
  }
}
