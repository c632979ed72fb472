// SPDX-License-Identifier: Apache-2.0
#include "frames.hpp"

using ctxbroker::sdk::PixelView;
using sample::Frames;

// The mean of the frames. Colours are weighted by alpha, so that invisible pixels do not bleed.
// Where a pixel is invisible in all frames, it keeps the job's own colour, and so it does if there
// is no other frame.
extern "C" __global__ void time_blur(const __grid_constant__ Frames frames, PixelView own,
                                     PixelView out) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= out.width) {
    return;
  }
  for (unsigned y = blockIdx.y * blockDim.y + threadIdx.y; y < out.height;
       y += gridDim.y * blockDim.y) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (unsigned i = 0; i < frames.count; ++i) {
      const float4 pixel = frames.frame[i].image.load(x, y);
      const float alpha = frames.frame[i].weight * pixel.w;
      sum.x += alpha * pixel.x;
      sum.y += alpha * pixel.y;
      sum.z += alpha * pixel.z;
      sum.w += alpha;
    }
    if (frames.count > 1 && sum.w > 0.0f) {
      out.store(x, y, make_float4(sum.x / sum.w, sum.y / sum.w, sum.z / sum.w, sum.w));
    } else {
      const float4 pixel = own.load(x, y);
      out.store(x, y, make_float4(pixel.x, pixel.y, pixel.z, sum.w));
    }
  }
}
