// SPDX-License-Identifier: Apache-2.0
// A separable gaussian over straight-alpha RGBA: rows into premultiplied sums, then columns.
// Colours are weighted by alpha, so that invisible pixels do not bleed. Edges repeat the last
// pixel.
//
// Tiles in shared memory hold the four components in planes of their own: neighbours in a warp
// read neighbouring words.
#pragma once

#include <ctxbroker/sdk/views.hpp>

namespace sample {

using ctxbroker::sdk::ImageView;
using ctxbroker::sdk::PixelView;

constexpr int column_tile = 16;     // pixels wide; threads in x and in y
constexpr int rows_per_thread = 4;  // the tile's outputs are column_tile * rows_per_thread tall

extern __shared__ float tile[];

// Adds weight[i] * (tile at -i*stride and at +i*stride) for a pixel whose centre is tile[centre].
__device__ inline float4 weighted_sum(int centre, int plane, int stride,
                                      const float* __restrict__ weights, int reach) {
  const float middle = weights[0];
  float4 sum = make_float4(middle * tile[centre], middle * tile[centre + plane],
                           middle * tile[centre + 2 * plane], middle * tile[centre + 3 * plane]);
  int below = centre;
  int above = centre;
  for (int i = 1; i <= reach; ++i) {
    const float weight = weights[i];
    below -= stride;
    above += stride;
    sum.x += weight * (tile[below] + tile[above]);
    sum.y += weight * (tile[below + plane] + tile[above + plane]);
    sum.z += weight * (tile[below + 2 * plane] + tile[above + 2 * plane]);
    sum.w += weight * (tile[below + 3 * plane] + tile[above + 3 * plane]);
  }
  return sum;
}

__device__ inline void store_in_tile(int slot, int plane, float4 value) {
  tile[slot] = value.x;
  tile[slot + plane] = value.y;
  tile[slot + 2 * plane] = value.z;
  tile[slot + 3 * plane] = value.w;
}

__device__ inline int clamp_index(int index, int count) {
  return min(max(index, 0), count - 1);
}

// What a pixel looks like after the blur: `sum` is premultiplied. Where all around is invisible
// the pixel keeps its own colour.
__device__ inline float4 straight(float4 sum, float4 original) {
  if (sum.w > 0.0f) {
    return make_float4(sum.x / sum.w, sum.y / sum.w, sum.z / sum.w, sum.w);
  }
  return make_float4(original.x, original.y, original.z, sum.w);
}

// The sums have the columns of `out` and the rows of `in`, which reaches further on each side, up
// to the edges of the picture. Dynamic shared memory: 4 * (blockDim.x + 2 * reach) * blockDim.y
// floats.
__device__ inline void gaussian_row_pass(PixelView in, ImageView sums, int first_column,
                                         const float* __restrict__ weights, int reach) {
  const int in_width = static_cast<int>(in.width);
  const int width = static_cast<int>(sums.width);
  const int height = static_cast<int>(sums.height);
  const int threads_x = static_cast<int>(blockDim.x);
  const int span = threads_x + 2 * reach;
  const int plane = span * static_cast<int>(blockDim.y);
  const int local = static_cast<int>(threadIdx.x);
  const int line = static_cast<int>(threadIdx.y) * span;
  const int left = static_cast<int>(blockIdx.x) * threads_x - reach;
  const int x = left + reach + local;
  const int step = static_cast<int>(gridDim.y * blockDim.y);

  // Every thread of the block goes through the same barriers: the loop depends on the block alone.
  for (int top = static_cast<int>(blockIdx.y * blockDim.y); top < height; top += step) {
    const int y = top + static_cast<int>(threadIdx.y);
    const int source_y = clamp_index(y, height);
    for (int i = local; i < span; i += threads_x) {
      float4 pixel = in.load(clamp_index(first_column + left + i, in_width), source_y);
      pixel.x *= pixel.w;
      pixel.y *= pixel.w;
      pixel.z *= pixel.w;
      store_in_tile(line + i, plane, pixel);
    }
    __syncthreads();
    if (x < width && y < height) {
      sums.row(y)[x] = weighted_sum(line + local + reach, plane, 1, weights, reach);
    }
    __syncthreads();
  }
}

// Launched with column_tile x column_tile threads. `finish(blurred, original)` makes the output
// pixel. Dynamic shared memory: 4 * column_tile * (column_tile * rows_per_thread + 2 * reach)
// floats.
template <class Finish>
__device__ inline void gaussian_column_pass(ImageView sums, PixelView in, PixelView out,
                                            const float* __restrict__ weights, int reach,
                                            Finish finish) {
  const int width = static_cast<int>(out.width);
  const int height = static_cast<int>(out.height);
  const int sums_height = static_cast<int>(sums.height);
  const int first_column = out.x - in.x;
  const int first_row = out.y - in.y;
  const int outputs = column_tile * rows_per_thread;
  const int span = outputs + 2 * reach;
  const int plane = span * column_tile;
  const int local = static_cast<int>(threadIdx.x);
  const int x = static_cast<int>(blockIdx.x) * column_tile + local;
  const int source_x = clamp_index(x, width);
  const int step = static_cast<int>(gridDim.y) * outputs;

  for (int top = static_cast<int>(blockIdx.y) * outputs; top < height; top += step) {
    for (int i = static_cast<int>(threadIdx.y); i < span; i += column_tile) {
      const int source_y = clamp_index(first_row + top - reach + i, sums_height);
      store_in_tile(i * column_tile + local, plane, sums.row(source_y)[source_x]);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.y); i < outputs; i += column_tile) {
      const int y = top + i;
      if (x < width && y < height) {
        const int centre = (i + reach) * column_tile + local;
        const float4 sum = weighted_sum(centre, plane, column_tile, weights, reach);
        const float4 original = in.load(first_column + x, first_row + y);
        const float4 blurred = reach == 0 ? original : straight(sum, original);
        out.store(x, y, finish(blurred, original));
      }
    }
    __syncthreads();
  }
}

}  // namespace sample

extern "C" __global__ void gaussian_rows(sample::PixelView in, sample::ImageView sums,
                                         int first_column, const float* weights, int reach) {
  sample::gaussian_row_pass(in, sums, first_column, weights, reach);
}
