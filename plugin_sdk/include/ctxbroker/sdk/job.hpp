// What activate and process are given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "ctxbroker/sdk/device_buffer.hpp"
#include "ctxbroker/sdk/global.hpp"
#include "ctxbroker/sdk/parameter.hpp"
#include "ctxbroker/sdk/stream.hpp"
#include "ctxbroker/sdk/views.hpp"

namespace ctxbroker::sdk {

// The only time to look up kernels and to allocate. Its stream serves uploads, clears and launches;
// the first job comes after them.
class Activation : public Stream, public ParameterValues {
 public:
  Activation(detail::Gpu& gpu, const ctxb_activation& raw) noexcept
      : Stream(gpu, raw.stream),
        ParameterValues(raw.parameters, raw.parameter_count),
        gpu_(&gpu),
        raw_(&raw) {}

  int device() const noexcept { return raw_->device; }
  std::uint64_t memory_budget() const noexcept { return raw_->memory_budget; }  // bytes; 0: any
  // The largest job: pixels, or frames and channels.
  std::uint32_t max_width() const noexcept { return raw_->max_width; }
  std::uint32_t max_height() const noexcept { return raw_->max_height; }
  std::uint32_t max_frames() const noexcept { return raw_->max_width; }
  std::uint32_t max_channels() const noexcept { return raw_->max_height; }
  double sample_rate() const noexcept { return raw_->sample_rate; }  // Hz; 0 for images
  bool realtime() const noexcept { return raw_->realtime != 0; }
  const ctxb_activation& raw() const noexcept { return *raw_; }

  // A kernel by its name (a literal, kept by pointer); `module` only when there are several.
  Kernel kernel(const char* name, const char* module = nullptr) const {
    Kernel found{nullptr, name};
    detail::require_success(gpu().calls().get_kernel(gpu().host(), module, name, &found.handle),
                            std::string("looking up the kernel '") + name + "'");
    return found;
  }

  // What the driver knows of it: registers, shared memory, arguments. Needs CTXB_EXT_LAUNCH.
  ctxb_kernel_info kernel_info(const Kernel& kernel) const {
    ctxb_kernel_info info{};
    info.size = sizeof(info);
    detail::require_success(
        gpu().need_launches().get_kernel_info(gpu().host(), kernel.handle, &info),
        std::string("asking about the kernel '") + kernel.name + "'");
    return info;
  }

  // The block size with which most threads of the kernel run at once, in x, and a grid of the
  // fewest blocks that fill the device, or the lease's part of it. Needs CTXB_EXT_LAUNCH.
  LaunchShape best_shape(const Kernel& kernel, std::uint32_t shared_bytes = 0,
                         std::uint32_t most_threads = 0) const {
    LaunchShape shape;
    shape.shared_bytes = shared_bytes;
    detail::require_success(
        gpu().need_launches().get_best_block(gpu().host(), kernel.handle, shared_bytes,
                                             most_threads, &shape.block.x, &shape.grid.x),
        std::string("finding a block size for the kernel '") + kernel.name + "'");
    return shape;
  }

  // Address of a __device__ or __constant__ variable.
  std::uint64_t global(const char* name, const char* module = nullptr) const {
    std::uint64_t bytes = 0;
    return find_global(name, module, bytes);
  }

  // The same, with its type: global<float>("gain"), global<float[16]>("taps"). Throws Failure when
  // the variable has another size.
  template <class T>
  Global<T> global(const char* name, const char* module = nullptr) const {
    std::uint64_t bytes = 0;
    const std::uint64_t address = find_global(name, module, bytes);
    if (bytes != sizeof(T)) {
      throw Failure(CTXB_ERROR_INVALID_ARGUMENT,
                    std::string("the variable '") + name + "' has " + std::to_string(bytes) +
                        " bytes; the type given for it has " + std::to_string(sizeof(T)));
    }
    return Global<T>(address);
  }

  // Device memory for `count` values (at least 1); its content is undefined.
  template <class T>
  DeviceBuffer<T> buffer(std::size_t count) const {
    if (count == 0 || count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
      throw Failure(CTXB_ERROR_INVALID_ARGUMENT,
                    "a device buffer of " + std::to_string(count) + " values cannot be made");
    }
    return DeviceBuffer<T>(detail::Allocation(*gpu_, static_cast<std::uint64_t>(count) * sizeof(T)),
                           count);
  }

 private:
  std::uint64_t find_global(const char* name, const char* module, std::uint64_t& bytes) const {
    std::uint64_t address = 0;
    detail::require_success(gpu().calls().get_global(gpu().host(), module, name, &address, &bytes),
                            std::string("looking up the variable '") + name + "'");
    return address;
  }

  detail::Gpu* gpu_;
  const ctxb_activation* raw_;
};

// One image, or one block of audio.
class Job : public Stream, public ParameterValues {
 public:
  Job(const detail::Gpu& gpu, const ctxb_job& raw) noexcept
      : Stream(gpu, raw.stream), ParameterValues(raw.parameters, raw.parameter_count), raw_(&raw) {}

  ImageView input_image() const { return image(raw_->inputs, raw_->input_count, "input"); }
  ImageView output_image() const { return image(raw_->outputs, raw_->output_count, "output"); }
  AudioView input_audio() const { return audio(raw_->inputs, raw_->input_count, "input"); }
  AudioView output_audio() const { return audio(raw_->outputs, raw_->output_count, "output"); }

  std::int64_t position() const noexcept { return raw_->position; }  // frame, or first sample
  double sample_rate() const noexcept { return raw_->sample_rate; }  // Hz; 0 for images
  std::uint64_t deadline_ns() const noexcept { return raw_->deadline_ns; }  // 0: offline
  // Not the successor of the last block: forget the history.
  bool discontinuity() const noexcept { return raw_->discontinuity != 0; }
  const ctxb_job& raw() const noexcept { return *raw_; }

 private:
  static const ctxb_buffer& only(const ctxb_buffer* buffers, std::uint32_t count,
                                 std::uint32_t media, const char* which) {
    if (count == 0 || buffers == nullptr || buffers[0].media != media) {
      throw Failure(CTXB_ERROR_INVALID_ARGUMENT,
                    std::string("the job's ") + which + " is missing or of another media");
    }
    return buffers[0];
  }
  static ImageView image(const ctxb_buffer* buffers, std::uint32_t count, const char* which) {
    const ctxb_buffer& buffer = only(buffers, count, CTXB_MEDIA_IMAGE, which);
    if (buffer.channels != 4 || buffer.data % 16 != 0 || buffer.row_pitch % 16 != 0) {
      throw Failure(
          CTXB_ERROR_INVALID_ARGUMENT,
          std::string("the job's ") + which + " image is not RGBA with pixels aligned to 16 bytes");
    }
    return {reinterpret_cast<float*>(buffer.data), buffer.row_pitch, buffer.width, buffer.height};
  }
  static AudioView audio(const ctxb_buffer* buffers, std::uint32_t count, const char* which) {
    const ctxb_buffer& buffer = only(buffers, count, CTXB_MEDIA_AUDIO, which);
    return {reinterpret_cast<float*>(buffer.data), buffer.row_pitch, buffer.width, buffer.height};
  }

  const ctxb_job* raw_;
};

}  // namespace ctxbroker::sdk
