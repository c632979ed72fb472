// Images and audio blocks in device memory, as both sides see them: host code fills them from a
// job, a kernel takes them by value. Compiles under the host's compiler and under nvcc.
#pragma once

#include <cstdint>

namespace ctxbroker::sdk {

// RGBA, linear light, straight alpha, 32-bit floats. `data` is a device address, aligned to 16
// bytes; `pitch` is in bytes, a multiple of 16; width and height are in pixels.
struct ImageView {
  float* data;
  std::uint64_t pitch;
  std::uint32_t width;
  std::uint32_t height;

#if defined(__CUDACC__)
  // Pixel (0, y).
  __device__ float4* row(std::uint32_t y) const {
    return reinterpret_cast<float4*>(reinterpret_cast<char*>(data) + y * pitch);
  }
#endif
};

// Planar audio: `frames` samples for each of `channels` channels. `data` is a device address;
// `pitch` is in bytes.
struct AudioView {
  float* data;
  std::uint64_t pitch;
  std::uint32_t frames;
  std::uint32_t channels;

#if defined(__CUDACC__)
  // Sample 0 of channel c.
  __device__ float* channel(std::uint32_t c) const {
    return reinterpret_cast<float*>(reinterpret_cast<char*>(data) + c * pitch);
  }
#endif
};

}  // namespace ctxbroker::sdk
