// SPDX-License-Identifier: Apache-2.0
#include <ctxbroker/sdk/views.hpp>

#include "operation.hpp"

using ctxbroker::sdk::PixelView;
using sample::Operation;

// Straight alpha: the colours are not multiplied by it.
__device__ float4 over(float4 front, float4 back) {
  const float behind = back.w * (1.0f - front.w);
  const float alpha = front.w + behind;
  if (alpha <= 0.0f) {
    return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  return make_float4((front.x * front.w + back.x * behind) / alpha,
                     (front.y * front.w + back.y * behind) / alpha,
                     (front.z * front.w + back.z * behind) / alpha, alpha);
}

__device__ float4 combine(float4 front, float4 back, Operation operation) {
  if (operation == Operation::add) {
    return make_float4(front.x + back.x, front.y + back.y, front.z + back.z,
                       fminf(front.w + back.w, 1.0f));
  }
  if (operation == Operation::multiply) {
    return make_float4(front.x * back.x, front.y * back.y, front.z * back.z, front.w * back.w);
  }
  return over(front, back);
}

// A weight of 0 is `from` and 1 is `to`, whatever the other one is.
__device__ float mix(float from, float to, float weight) {
  if (weight == 0.0f) return from;
  return weight == 1.0f ? to : from + (to - from) * weight;
}

// Without a mask, which is 1 everywhere, mask.data is 0.
extern "C" __global__ void merge(PixelView front, PixelView back, PixelView mask, PixelView out,
                                 Operation operation, float amount) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= out.width) {
    return;
  }
  for (unsigned y = blockIdx.y * blockDim.y + threadIdx.y; y < out.height;
       y += gridDim.y * blockDim.y) {
    const int column = out.x + static_cast<int>(x), row = out.y + static_cast<int>(y);
    const float weight = mask.data != 0 ? amount * mask.at(column, row).x : amount;
    const float4 behind = back.at(column, row);
    const float4 both = combine(front.at(column, row), behind, operation);
    out.store(x, y,
              make_float4(mix(behind.x, both.x, weight), mix(behind.y, both.y, weight),
                          mix(behind.z, both.z, weight), mix(behind.w, both.w, weight)));
  }
}
