// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

using ctxbroker::sdk::PixelView;

// Light below 0 keeps its sign, and what is no number stays none. An exponent of 1 changes nothing.
__device__ float expose(float value, float scale, float exponent) {
  const float light = value * scale;
  return exponent == 1.0f ? light : copysignf(powf(fabsf(light), exponent), light);
}

extern "C" __global__ void exposure(PixelView in, PixelView out, float scale, float exponent) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= out.width) {
    return;
  }
  for (unsigned y = blockIdx.y * blockDim.y + threadIdx.y; y < out.height;
       y += gridDim.y * blockDim.y) {
    float4 pixel = in.load(x, y);
    pixel.x = expose(pixel.x, scale, exponent);
    pixel.y = expose(pixel.y, scale, exponent);
    pixel.z = expose(pixel.z, scale, exponent);
    out.store(x, y, pixel);
  }
}
