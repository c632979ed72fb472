// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

using ctxbroker::sdk::ImageView;

extern "C" __global__ void vignette(ImageView in, ImageView out, float centre_x, float centre_y,
                                    float radius, float softness, float red, float green,
                                    float blue, float most) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= out.width) {
    return;
  }
  const float width = static_cast<float>(out.width), height = static_cast<float>(out.height);
  const float unit = 2 / sqrtf(width * width + height * height);  // 1 is half of the diagonal
  const float across = (x + 0.5f - centre_x * width) * unit;
  for (unsigned y = blockIdx.y * blockDim.y + threadIdx.y; y < out.height;
       y += gridDim.y * blockDim.y) {
    const float down = (y + 0.5f - centre_y * height) * unit;
    const float distance = sqrtf(across * across + down * down);
    const float part = fminf(fmaxf((distance - radius) / softness, 0.0f), 1.0f);
    const float amount = most * part * part * (3 - 2 * part);  // smooth at both ends
    float4 pixel = in.row(y)[x];
    if (amount != 0.0f) {  // otherwise the pixel stays, infinities too
      pixel.x += amount * (red - pixel.x);
      pixel.y += amount * (green - pixel.y);
      pixel.z += amount * (blue - pixel.z);
    }
    out.row(y)[x] = pixel;
  }
}
