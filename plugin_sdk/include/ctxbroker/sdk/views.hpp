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
