// SPDX-License-Identifier: Apache-2.0
#include "equaliser.hpp"

#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/transform.h>

#include <algorithm>
#include <ctxbroker/sdk/launch_shape.hpp>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_scan.cuh>

namespace ctxbroker::sample {
namespace {

using sdk::ImageView;

// The square root is near to what an eye makes of light, and every machine rounds it alike; so do
// these products and sums, which no compiler may fuse.
__device__ float brightness(float4 pixel) {
  const float red = __fmul_rn(0.2126f, fmaxf(pixel.x, 0.0f));
  const float green = __fmul_rn(0.7152f, fmaxf(pixel.y, 0.0f));
  const float blue = __fmul_rn(0.0722f, fmaxf(pixel.z, 0.0f));
  return __fsqrt_rn(fminf(__fadd_rn(__fadd_rn(red, green), blue), 1.0f));
}

__device__ int level_of(float bright, unsigned levels) {
  const unsigned level = static_cast<unsigned>(__fmul_rn(bright, static_cast<float>(levels)));
  return static_cast<int>(level < levels ? level : levels - 1);
}

__global__ void keys_kernel(ImageView in, unsigned levels, std::int32_t* keys) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= in.width) return;
  for (unsigned y = blockIdx.y * blockDim.y + threadIdx.y; y < in.height;
       y += gridDim.y * blockDim.y) {
    const float4 pixel = in.row(y)[x];
    keys[size_t{y} * in.width + x] = pixel.w > 0 ? level_of(brightness(pixel), levels) : -1;
  }
}

// The share of pixels that are darker, those of the same level counted half.
struct ToTarget {
  const std::uint32_t* histogram;
  const std::uint32_t* upto;
  unsigned levels;

  __device__ float operator()(unsigned level) const {
    const double all = upto[levels - 1];
    if (all == 0) return 0;
    return static_cast<float>((upto[level] - 0.5 * histogram[level]) / all);
  }
};

__global__ void apply_kernel(ImageView in, ImageView out, unsigned levels, const float* target,
                             Strength strength) {
  const unsigned x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= out.width) return;
  for (unsigned y = blockIdx.y * blockDim.y + threadIdx.y; y < out.height;
       y += gridDim.y * blockDim.y) {
    float4 pixel = in.row(y)[x];
    const float bright = brightness(pixel);
    if (bright > 0 && pixel.w > 0) {
      const float wanted = target[level_of(bright, levels)];
      const float factor = (bright + strength.amount * (wanted - bright)) / bright;
      const float light = fminf(fmaxf(factor * factor, 1 / strength.limit), strength.limit);
      pixel.x *= light;
      pixel.y *= light;
      pixel.z *= light;
    }
    out.row(y)[x] = pixel;
  }
}

dim3 three(const sdk::Extent3& extent) {
  return {extent.x, extent.y, extent.z};
}

// Both are called twice: without scratch memory they say how much they need.
cudaError_t count(void* scratch, std::size_t& bytes, const std::int32_t* keys,
                  std::uint32_t* histogram, unsigned levels, int pixels, cudaStream_t stream) {
  return cub::DeviceHistogram::HistogramEven(scratch, bytes, keys, histogram,
                                             static_cast<int>(levels) + 1, 0,
                                             static_cast<int>(levels), pixels, stream);
}

cudaError_t add_up(void* scratch, std::size_t& bytes, const std::uint32_t* histogram,
                   std::uint32_t* upto, unsigned levels, cudaStream_t stream) {
  return cub::DeviceScan::InclusiveSum(scratch, bytes, histogram, upto, static_cast<int>(levels),
                                       stream);
}

}  // namespace

void Equaliser::allocate(std::uint64_t pixels, std::uint32_t levels) {
  if (pixels > 0x7fffffffU) {
    throw sdk::Failure(CTXB_ERROR_UNSUPPORTED,
                       "an image of " + std::to_string(pixels) +
                           " pixels is too large; at most 2,147,483,647 are counted");
  }
  levels_ = levels;
  keys_.allocate(pixels);
  histogram_.allocate(levels);
  upto_.allocate(levels);
  target_.allocate(levels);
  std::size_t for_count = 0, for_sum = 0;
  check(count(nullptr, for_count, keys_.data(), histogram_.data(), levels, static_cast<int>(pixels),
              nullptr),
        "asking CUB how much memory a histogram takes");
  check(add_up(nullptr, for_sum, histogram_.data(), upto_.data(), levels, nullptr),
        "asking CUB how much memory a sum takes");
  scratch_.allocate(std::max(for_count, for_sum));
}

void Equaliser::run(const ImageView& in, const ImageView& out, const Strength& strength,
                    cudaStream_t stream) {
  const sdk::LaunchShape shape = sdk::over(out.width, out.height);
  keys_kernel<<<three(shape.grid), three(shape.block), 0, stream>>>(in, levels_, keys_.data());
  check(cudaGetLastError(), "launching keys");
  std::size_t bytes = scratch_.bytes();
  check(count(scratch_.data(), bytes, keys_.data(), histogram_.data(), levels_,
              static_cast<int>(out.width * out.height), stream),
        "counting pixels");
  bytes = scratch_.bytes();
  check(add_up(scratch_.data(), bytes, histogram_.data(), upto_.data(), levels_, stream),
        "adding up the counts");
  const thrust::counting_iterator<unsigned> level(0);
  thrust::transform(thrust::cuda::par_nosync.on(stream), level, level + levels_, target_.data(),
                    ToTarget{histogram_.data(), upto_.data(), levels_});
  apply_kernel<<<three(shape.grid), three(shape.block), 0, stream>>>(in, out, levels_,
                                                                     target_.data(), strength);
  check(cudaGetLastError(), "launching apply");
}

void Equaliser::reset() noexcept {
  keys_.reset();
  histogram_.reset();
  upto_.reset();
  target_.reset();
  scratch_.reset();
}

void Equaliser::forget() noexcept {
  keys_.forget();
  histogram_.forget();
  upto_.forget();
  target_.forget();
  scratch_.forget();
}

}  // namespace ctxbroker::sample
