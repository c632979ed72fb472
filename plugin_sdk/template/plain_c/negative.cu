// SPDX-License-Identifier: Apache-2.0
// The kernel takes what a ctxb_buffer has, number by number.
extern "C" __global__ void negative(const char* in, unsigned long long in_pitch, char* out,
                                    unsigned long long out_pitch, unsigned width, unsigned height) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= width) {
    return;
  }
  for (unsigned y = blockIdx.y; y < height; y += gridDim.y) {
    float4 pixel = reinterpret_cast<const float4*>(in + y * in_pitch)[x];
    pixel.x = 1 - pixel.x;
    pixel.y = 1 - pixel.y;
    pixel.z = 1 - pixel.z;
    reinterpret_cast<float4*>(out + y * out_pitch)[x] = pixel;
  }
}
