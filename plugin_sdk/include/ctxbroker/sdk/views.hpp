// SPDX-License-Identifier: Apache-2.0
/// @file
/// Images and audio blocks in device memory. Job returns them, and a kernel takes them by value.
/// The header compiles with the host's compiler and with nvcc.
#pragma once

#include <cstdint>

namespace ctxbroker::sdk {

/// An image: RGBA in linear light with straight alpha, four 32-bit floats a pixel.
struct ImageView {
  float* data;           ///< The device address of pixel (0, 0), a multiple of 16.
  std::uint64_t pitch;   ///< Bytes from one row to the next, a multiple of 16.
  std::uint32_t width;   ///< Pixels in a row.
  std::uint32_t height;  ///< Rows.

#if defined(__CUDACC__)
  /// Returns the address of pixel (0, y).
  __device__ float4* row(std::uint32_t y) const {
    return reinterpret_cast<float4*>(reinterpret_cast<char*>(data) + y * pitch);
  }
#endif
};

/// An image in any format: 1 to 4 channels of 32-bit floats or of halves. A kernel reads and writes
/// pixels as four floats, and the view converts, so one kernel serves all formats.
struct PixelView {
  std::uint64_t data;      ///< The device address of pixel (0, 0), aligned for a pixel. 0: none.
  std::uint64_t pitch;     ///< Bytes from one row to the next.
  std::uint32_t width;     ///< Pixels in a row.
  std::uint32_t height;    ///< Rows.
  std::uint32_t channels;  ///< 1: grey. 2: grey and alpha. 3: RGB. 4: RGBA.
  std::uint32_t is_half;   ///< 1: samples are halves. 0: they are floats.
  std::int32_t x;          ///< Where pixel (0, 0) of the view is in the picture: 0, unless the view
  std::int32_t y;          ///< is a part of it or the picture has another first pixel.

#if defined(__CUDACC__)
  /// Returns pixel (column, row) of the view as RGBA. Grey is returned in all three colours, and a
  /// missing alpha as 1.
  __device__ float4 load(std::uint32_t column, std::uint32_t row) const {
    float sample[4];
    if (channels == 4 && is_half == 0)
      return *reinterpret_cast<const float4*>(address(column, row));
    if (channels == 4) {
      const uint2 bits = *reinterpret_cast<const uint2*>(address(column, row));
      return make_float4(to_float(bits.x & 0xffffU), to_float(bits.x >> 16),
                         to_float(bits.y & 0xffffU), to_float(bits.y >> 16));
    }
    for (std::uint32_t c = 0; c < 3; ++c)
      sample[c] = c < channels ? load_sample(column, row, c) : 1.0f;
    if (channels == 3) return make_float4(sample[0], sample[1], sample[2], 1.0f);
    return make_float4(sample[0], sample[0], sample[0], sample[1]);
  }

  /// Returns the pixel at (column, row) of the picture, or transparent black outside the view.
  __device__ float4 at(std::int32_t column, std::int32_t row) const {
    const std::int32_t inner_x = column - x, inner_y = row - y;
    const bool is_inside = inner_x >= 0 && inner_y >= 0 &&
                           static_cast<std::uint32_t>(inner_x) < width &&
                           static_cast<std::uint32_t>(inner_y) < height;
    if (!is_inside) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    return load(static_cast<std::uint32_t>(inner_x), static_cast<std::uint32_t>(inner_y));
  }

  /// Stores a pixel. Grey is the pixel's red, and an alpha that the image lacks is dropped. A half
  /// is the nearest one; a finite value beyond the range of halves becomes the largest finite half.
  __device__ void store(std::uint32_t column, std::uint32_t row, float4 pixel) const {
    if (channels == 4 && is_half == 0) {
      *reinterpret_cast<float4*>(address(column, row)) = pixel;
    } else if (channels == 4) {
      *reinterpret_cast<uint2*>(address(column, row)) = make_uint2(
          to_half(pixel.x) | to_half(pixel.y) << 16, to_half(pixel.z) | to_half(pixel.w) << 16);
    } else {
      store_sample(column, row, 0, pixel.x);
      if (channels == 2) store_sample(column, row, 1, pixel.w);
      if (channels == 3) {
        store_sample(column, row, 1, pixel.y);
        store_sample(column, row, 2, pixel.z);
      }
    }
  }

 private:
  __device__ char* address(std::uint32_t column, std::uint32_t row) const {
    return reinterpret_cast<char*>(data) + row * pitch +
           static_cast<std::uint64_t>(column) * (channels * (is_half != 0 ? 2 : 4));
  }
  __device__ float load_sample(std::uint32_t column, std::uint32_t row, std::uint32_t c) const {
    const char* const pixel = address(column, row);
    return is_half != 0 ? to_float(reinterpret_cast<const unsigned short*>(pixel)[c])
                        : reinterpret_cast<const float*>(pixel)[c];
  }
  __device__ void store_sample(std::uint32_t column, std::uint32_t row, std::uint32_t c,
                               float value) const {
    char* const pixel = address(column, row);
    if (is_half != 0) {
      reinterpret_cast<unsigned short*>(pixel)[c] = static_cast<unsigned short>(to_half(value));
    } else {
      reinterpret_cast<float*>(pixel)[c] = value;
    }
  }
  // The instructions themselves, because NVRTC may not find cuda_fp16.h.
  __device__ static float to_float(std::uint32_t half) {
    const unsigned short bits = static_cast<unsigned short>(half);
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
  __device__ static std::uint32_t to_half(float value) {
    const float size = fabsf(value);
    if (size > 65504.0f && size <= 3.402823466e38f) value = copysignf(65504.0f, value);
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
  }
#endif
};

/// A block of audio: one 32-bit float a sample, channel after channel.
struct AudioView {
  float* data;             ///< The device address of channel 0's sample 0.
  std::uint64_t pitch;     ///< Bytes from one channel to the next, a multiple of 4.
  std::uint32_t frames;    ///< Samples of each channel.
  std::uint32_t channels;  ///< Channels.

#if defined(__CUDACC__)
  /// Returns the address of channel c's sample 0.
  __device__ float* channel(std::uint32_t c) const {
    return reinterpret_cast<float*>(reinterpret_cast<char*>(data) + c * pitch);
  }
#endif
};

}  // namespace ctxbroker::sdk
