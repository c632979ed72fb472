// SPDX-License-Identifier: Apache-2.0
#include "gaussian.cuh"

using sample::ImageView;
using sample::PixelView;

// The part of a difference that is beyond the threshold; continuous, so that no edge appears where
// the difference crosses it.
__device__ float beyond(float difference, float threshold) {
  return copysignf(fmaxf(fabsf(difference) - threshold, 0.0f), difference);
}

extern "C" __global__ void unsharp_columns(ImageView sums, PixelView in, PixelView out,
                                           const float* weights, int reach, float amount,
                                           float threshold) {
  sample::gaussian_column_pass(
      sums, in, out, weights, reach, [amount, threshold](float4 blurred, float4 original) {
        if (amount == 0.0f) return original;
        return make_float4(original.x + amount * beyond(original.x - blurred.x, threshold),
                           original.y + amount * beyond(original.y - blurred.y, threshold),
                           original.z + amount * beyond(original.z - blurred.z, threshold),
                           original.w);
      });
}
