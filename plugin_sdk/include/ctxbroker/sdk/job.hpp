// SPDX-License-Identifier: Apache-2.0
/// @file
/// What activate and process get from the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "ctxbroker/sdk/device_buffer.hpp"
#include "ctxbroker/sdk/events.hpp"
#include "ctxbroker/sdk/global.hpp"
#include "ctxbroker/sdk/parameter.hpp"
#include "ctxbroker/sdk/stream.hpp"
#include "ctxbroker/sdk/views.hpp"

namespace ctxbroker::sdk {

/// One activation: the only time to look up kernels and to allocate. It is valid during the call of
/// Plugin::activate.
///
/// It is also a stream, for uploads, clears and launches. The first job runs after them.
class Activation : public Stream, public ParameterValues {
 public:
  /// Only the SDK constructs one.
  Activation(detail::Gpu& gpu, const ctxb_activation& raw) noexcept
      : Stream(gpu, raw.stream),
        ParameterValues(raw.parameters, raw.parameter_count),
        gpu_(&gpu),
        raw_(&raw) {}

  /// The device, as a CUDA device ordinal.
  [[nodiscard]] int device() const noexcept { return raw_->device; }
  /// How many bytes of device memory the instance may allocate; 0: any number.
  [[nodiscard]] std::uint64_t memory_budget() const noexcept { return raw_->memory_budget; }
  /// The widest image that a job will have, in pixels.
  [[nodiscard]] std::uint32_t max_width() const noexcept { return raw_->max_width; }
  /// The highest image that a job will have, in rows.
  [[nodiscard]] std::uint32_t max_height() const noexcept { return raw_->max_height; }
  /// The longest block that a job will have, in frames.
  [[nodiscard]] std::uint32_t max_frames() const noexcept { return raw_->max_width; }
  /// The most channels that a job will have.
  [[nodiscard]] std::uint32_t max_channels() const noexcept { return raw_->max_height; }
  /// The sample rate in Hz; 0 for images.
  [[nodiscard]] double sample_rate() const noexcept { return raw_->sample_rate; }
  /// Whether process will be called on an [audio] thread.
  [[nodiscard]] bool realtime() const noexcept { return raw_->realtime != 0; }
  /// The host's struct.
  [[nodiscard]] const ctxb_activation& raw() const noexcept { return *raw_; }

  /// Looks up a kernel.
  ///
  /// @param name    its name, mangled for C++. It is kept by pointer, so pass a literal.
  /// @param module  its module's name. Null is enough when the plug-in has one module.
  /// @return the kernel, good for this activation.
  /// @throws Failure  CTXB_ERROR_NOT_FOUND when there is no such kernel; otherwise when its module
  ///                  cannot be loaded.
  [[nodiscard]] Kernel kernel(const char* name, const char* module = nullptr) const {
    Kernel found{nullptr, name};
    detail::check_success(gpu().calls().get_kernel(gpu().host(), module, name, &found.handle),
                          std::string("looking up the kernel '") + name + "'");
    return found;
  }

  /// Asks the driver for a kernel's registers, shared memory and arguments.
  ///
  /// @throws Failure  CTXB_ERROR_UNSUPPORTED when the host does not have CTXB_EXT_LAUNCH.
  [[nodiscard]] ctxb_kernel_info kernel_info(const Kernel& kernel) const {
    ctxb_kernel_info info{};
    info.size = sizeof(info);
    detail::check_success(
        gpu().required_launches().get_kernel_info(gpu().host(), kernel.handle, &info),
        std::string("asking about the kernel '") + kernel.name + "'");
    return info;
  }

  /// Finds the block size with which the most threads of a kernel run at once.
  ///
  /// @param kernel        the kernel.
  /// @param shared_bytes  dynamic shared memory of each block, in bytes.
  /// @param most_threads  the largest block wanted, in threads; 0: any.
  /// @return a shape in x: that block, and the fewest blocks that fill the lease's part of the
  ///         device.
  /// @throws Failure  CTXB_ERROR_UNSUPPORTED when the host does not have CTXB_EXT_LAUNCH.
  [[nodiscard]] LaunchShape best_shape(const Kernel& kernel, std::uint32_t shared_bytes = 0,
                                       std::uint32_t most_threads = 0) const {
    LaunchShape shape;
    shape.shared_bytes = shared_bytes;
    detail::check_success(
        gpu().required_launches().get_best_block(gpu().host(), kernel.handle, shared_bytes,
                                                 most_threads, &shape.block.x, &shape.grid.x),
        std::string("finding a block size for the kernel '") + kernel.name + "'");
    return shape;
  }

  /// Finds a `__device__` or `__constant__` variable.
  ///
  /// @param name    its name, mangled for C++.
  /// @param module  its module's name. Null is enough when the plug-in has one module.
  /// @return its device address.
  /// @throws Failure  when there is none.
  [[nodiscard]] std::uint64_t global(const char* name, const char* module = nullptr) const {
    std::uint64_t bytes = 0;
    return find_global(name, module, bytes);
  }

  /// Finds a variable with its type: global<float>("gain"), global<float[16]>("taps").
  ///
  /// @throws Failure  when there is none, or it has another size.
  template <class T>
  [[nodiscard]] Global<T> global(const char* name, const char* module = nullptr) const {
    std::uint64_t bytes = 0;
    const std::uint64_t address = find_global(name, module, bytes);
    if (bytes != sizeof(T)) {
      throw Failure(CTXB_ERROR_INVALID_ARGUMENT,
                    std::string("the variable '") + name + "' has " + std::to_string(bytes) +
                        " bytes; the type given for it has " + std::to_string(sizeof(T)));
    }
    return Global<T>(address);
  }

  /// Allocates device memory. Its content is undefined.
  ///
  /// @param count  how many values of type T, at least 1.
  /// @throws Failure  CTXB_ERROR_OUT_OF_DEVICE_MEMORY, also beyond the budget;
  ///                  CTXB_ERROR_INVALID_ARGUMENT.
  template <class T>
  [[nodiscard]] DeviceBuffer<T> buffer(std::size_t count) const {
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
    detail::check_success(gpu().calls().get_global(gpu().host(), module, name, &address, &bytes),
                          std::string("looking up the variable '") + name + "'");
    return address;
  }

  detail::Gpu* gpu_;
  const ctxb_activation* raw_;
};

/// One job: an image, or a block of audio. It is valid during the call of Plugin::process. It is
/// also the stream on which to enqueue the job's work.
class Job : public Stream, public ParameterValues {
 public:
  /// Only the SDK constructs one.
  Job(const detail::Gpu& gpu, const ctxb_job& raw) noexcept
      : Stream(gpu, raw.stream), ParameterValues(raw.parameters, raw.parameter_count), raw_(&raw) {}

  /// An input or output in device memory, by its position among the plug-in's ports. It is valid
  /// during the call of process.
  ///
  /// @param frame  of the inputs of a plug-in that is Temporal: the distance from the job's frame.
  /// @throws Failure  CTXB_ERROR_INVALID_ARGUMENT when there is no such port or frame, it is not
  ///                  connected, or its format is not that of the view: an image of RGBA floats, or
  ///                  audio.
  [[nodiscard]] ImageView input_image(std::uint32_t port = 0, std::int32_t frame = 0) const {
    return image(input(port, frame), "input", port);
  }
  [[nodiscard]] ImageView output_image(std::uint32_t port = 0) const {
    return image(output(port), "output", port);
  }
  /// The same for an image of 1 to 4 channels of floats or halves.
  [[nodiscard]] PixelView input_pixels(std::uint32_t port = 0, std::int32_t frame = 0) const {
    return pixels(input(port, frame), "input", port);
  }
  [[nodiscard]] PixelView output_pixels(std::uint32_t port = 0) const {
    return pixels(output(port), "output", port);
  }
  [[nodiscard]] AudioView input_audio(std::uint32_t port = 0) const {
    return audio(input(port), "input", port);
  }
  [[nodiscard]] AudioView output_audio(std::uint32_t port = 0) const {
    return audio(output(port), "output", port);
  }
  /// Whether an optional input is connected.
  [[nodiscard]] bool has_input(std::uint32_t port) const { return input(port).data != 0; }
  /// Whether an optional output is connected.
  [[nodiscard]] bool has_output(std::uint32_t port) const { return output(port).data != 0; }
  /// The buffer of an input or output, whatever its format.
  ///
  /// @param frame  as for input_image.
  /// @throws Failure  CTXB_ERROR_INVALID_ARGUMENT when there is no such port or frame.
  [[nodiscard]] const ctxb_buffer& input(std::uint32_t port, std::int32_t frame = 0) const {
    const ctxb_buffer& own = at(raw_->inputs, raw_->input_count, "input", port);
    if (frame == 0) return own;
    const std::int64_t wanted = raw_->position + frame;
    for (std::uint32_t i = 0; i < own.frame_count; ++i) {
      const ctxb_buffer& one = element(own.frames, i);
      if (one.position == wanted) return one;
    }
    refuse("input", port, " does not have that frame; see Temporal::frames");
  }
  [[nodiscard]] const ctxb_buffer& output(std::uint32_t port) const {
    return at(raw_->outputs, raw_->output_count, "output", port);
  }

  /// The image's number, or the number of the block's first sample.
  [[nodiscard]] std::int64_t position() const noexcept { return raw_->position; }
  /// The sample rate in Hz; 0 for images.
  [[nodiscard]] double sample_rate() const noexcept { return raw_->sample_rate; }
  /// How long the whole job may take, in ns; 0: as long as it needs.
  [[nodiscard]] std::uint64_t deadline_ns() const noexcept { return raw_->deadline_ns; }
  /// True when the job does not follow the last one. Then forget what you kept of earlier jobs.
  [[nodiscard]] bool discontinuity() const noexcept { return raw_->discontinuity != 0; }
  /// The frames of an audio block; 0 for images.
  [[nodiscard]] std::uint32_t frames() const {
    for (std::uint32_t i = 0; i < raw_->output_count; ++i) {
      if (output(i).media == CTXB_MEDIA_AUDIO) return output(i).width;
    }
    for (std::uint32_t i = 0; i < raw_->input_count; ++i) {
      if (input(i).media == CTXB_MEDIA_AUDIO) return input(i).width;
    }
    return 0;
  }
  /// What changes within the block: the host's list.
  [[nodiscard]] Events events() const noexcept { return Events(*raw_); }
  /// The same for one parameter, as segments that cover the block. `job[parameter]` is its value at
  /// frame 0.
  ///
  /// @param parameter  a parameter of this plug-in's table. Its value is taken as a number.
  /// @throws std::out_of_range  when the host sent no value for it.
  template <class Value>
  [[nodiscard]] Segments segments(const Parameter<Value>& parameter) const {
    const auto start = static_cast<double>((*this)[parameter]);
    return {*raw_, parameter.index, start, frames()};
  }
  /// Where the host's song is at frame 0; null when the host does not say.
  [[nodiscard]] const ctxb_transport* transport() const noexcept { return raw_->transport; }
  /// The host's struct.
  [[nodiscard]] const ctxb_job& raw() const noexcept { return *raw_; }

 private:
  [[noreturn]] static void refuse(const char* which, std::uint32_t port, const char* why) {
    throw Failure(CTXB_ERROR_INVALID_ARGUMENT,
                  std::string("the job's ") + which + " " + std::to_string(port) + why);
  }
  static const ctxb_buffer& at(const ctxb_buffer* buffers, std::uint32_t count, const char* which,
                               std::uint32_t port) {
    if (port >= count || buffers == nullptr) refuse(which, port, " does not exist");
    return element(buffers, port);
  }
  // A later version's buffers may be longer.
  static const ctxb_buffer& element(const ctxb_buffer* buffers, std::uint32_t index) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(buffers);
    return *reinterpret_cast<const ctxb_buffer*>(bytes + std::size_t{index} * buffers->size);
  }
  static ImageView image(const ctxb_buffer& buffer, const char* which, std::uint32_t port) {
    if (buffer.media != CTXB_MEDIA_IMAGE) refuse(which, port, " is no image, or not connected");
    if (buffer.samples != CTXB_SAMPLE_FLOAT || buffer.channels != 4 || buffer.data % 16 != 0 ||
        buffer.row_pitch % 16 != 0) {
      refuse(which, port, " is not RGBA as floats with pixels aligned to 16 bytes");
    }
    return {reinterpret_cast<float*>(buffer.data), buffer.row_pitch, buffer.width, buffer.height};
  }
  static PixelView pixels(const ctxb_buffer& buffer, const char* which, std::uint32_t port) {
    if (buffer.media != CTXB_MEDIA_IMAGE) refuse(which, port, " is no image, or not connected");
    const bool is_half = buffer.samples == CTXB_SAMPLE_HALF;
    if ((!is_half && buffer.samples != CTXB_SAMPLE_FLOAT) || buffer.channels < 1 ||
        buffer.channels > 4) {
      refuse(which, port, " does not have 1 to 4 channels of floats or halves");
    }
    const std::uint32_t together = buffer.channels == 4 ? 4 : 1;  // samples moved at once
    const std::uint32_t alignment = together * (is_half ? 2 : 4);
    if (buffer.data % alignment != 0 || buffer.row_pitch % alignment != 0) {
      refuse(which, port, " has pixels that are not aligned");
    }
    return {buffer.data,     buffer.row_pitch,  buffer.width, buffer.height,
            buffer.channels, is_half ? 1U : 0U, buffer.x,     buffer.y};
  }
  static AudioView audio(const ctxb_buffer& buffer, const char* which, std::uint32_t port) {
    if (buffer.media != CTXB_MEDIA_AUDIO) refuse(which, port, " is no audio, or not connected");
    return {reinterpret_cast<float*>(buffer.data), buffer.row_pitch, buffer.width, buffer.height};
  }

  const ctxb_job* raw_;
};

}  // namespace ctxbroker::sdk
