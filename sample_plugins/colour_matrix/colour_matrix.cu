// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

#include "matrix.hpp"

using ctxbroker::sdk::PixelView;

// 0 for a factor of 0, so that a colour that does not count cannot spoil the others.
__device__ float times(float factor, float value) {
  return factor == 0.0f ? 0.0f : factor * value;
}

extern "C" __global__ void colour_matrix(PixelView in, PixelView out, Matrix matrix) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= out.width) {
    return;
  }
  const float* m = matrix.m;
  for (unsigned y = blockIdx.y * blockDim.y + threadIdx.y; y < out.height;
       y += gridDim.y * blockDim.y) {
    const float4 p = in.load(x, y);
    out.store(x, y,
              make_float4(times(m[0], p.x) + times(m[1], p.y) + times(m[2], p.z) + matrix.offset[0],
                          times(m[3], p.x) + times(m[4], p.y) + times(m[5], p.z) + matrix.offset[1],
                          times(m[6], p.x) + times(m[7], p.y) + times(m[8], p.z) + matrix.offset[2],
                          p.w));
  }
}
