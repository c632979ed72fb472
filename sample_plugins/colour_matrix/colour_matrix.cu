// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

#include "matrix.hpp"

using ctxbroker::sdk::PixelView;

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
              make_float4(m[0] * p.x + m[1] * p.y + m[2] * p.z + matrix.offset[0],
                          m[3] * p.x + m[4] * p.y + m[5] * p.z + matrix.offset[1],
                          m[6] * p.x + m[7] * p.y + m[8] * p.z + matrix.offset[2], p.w));
  }
}
