// SPDX-License-Identifier: Apache-2.0
/// @file
/// Enqueues work on the stream of an activation or a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ctxbroker/sdk/arguments.hpp"
#include "ctxbroker/sdk/device_buffer.hpp"
#include "ctxbroker/sdk/global.hpp"
#include "ctxbroker/sdk/gpu.hpp"
#include "ctxbroker/sdk/launch_shape.hpp"

namespace ctxbroker::sdk {

class Stream;

/// A kernel of one of the plug-in's modules. Activation::kernel returns it. It is cheap to copy and
/// good for one activation, so look it up again in the next activate.
struct Kernel {
  const ctxb_kernel* handle = nullptr;  ///< The host's handle; null: no kernel.
  const char* name = "";                ///< The name that it was looked up by, for error texts.

  /// Launches the kernel, as Stream::launch: kernel.launch(job, grid, block, out, in, 1.5F).
  template <class... Arguments>
  void launch(const Stream& stream, const Extent3& grid, const Extent3& block,
              const Arguments&... arguments) const;
};

/// The stream of an activation or a job. Its work happens in order.
///
/// It is valid during the call that passed it. Every function enqueues and returns without waiting,
/// except that upload and set wait in activate. It throws Failure when the host refuses. Tags:
/// [render|audio] [ctx] [no-sync], and in activate.
class Stream {
 public:
  /// Only the SDK constructs one.
  Stream(const detail::Gpu& gpu, void* raw) noexcept : gpu_(&gpu), raw_(raw) {}

  /// Enqueues a launch. The host compares the arguments' number and sizes with the kernel's.
  ///
  /// @param kernel     a kernel of this activation.
  /// @param shape      its grid and block.
  /// @param arguments  the kernel's arguments, in order and with its exact types: 1.0 is a double
  ///                   and 1.0f is a float. A DeviceBuffer<T> becomes a T*. They are copied.
  /// @throws Failure  CTXB_ERROR_INVALID_ARGUMENT, with the number of the argument or the limit
  ///                  that is wrong; CTXB_ERROR_UNSUPPORTED for what the device cannot do;
  ///                  CTXB_ERROR_CONTEXT_LOST; CTXB_ERROR_DRIVER.
  template <class... Arguments>
  void launch(const Kernel& kernel, const LaunchShape& shape, const Arguments&... arguments) const {
    using Layout = ArgumentLayout<Arguments...>;
    // One element more, because an array cannot be empty.
    const void* const addresses[] = {detail::Argument<Arguments>::address(arguments)..., nullptr};
    ctxb_launch raw = launch_of(kernel, shape, Layout::count, Layout::sizes);
    raw.arguments = addresses;
    enqueue(kernel, raw, options_of(shape));
  }

  /// Does the same with arguments in one piece, which pack returns. Use it for a kernel that is
  /// often launched with the same arguments. The host compares their offsets too.
  ///
  /// @throws Failure  as launch; CTXB_ERROR_UNSUPPORTED when the host does not have
  ///                  CTXB_EXT_LAUNCH.
  template <class... Arguments>
  void launch_packed(const Kernel& kernel, const LaunchShape& shape,
                     const PackedArguments<Arguments...>& arguments) const {
    using Layout = ArgumentLayout<Arguments...>;
    ctxb_launch_options options = options_of(shape);
    options.packed = arguments.data();
    options.packed_bytes = Layout::bytes;
    options.argument_offsets = Layout::offsets;
    enqueue(kernel, launch_of(kernel, shape, Layout::count, Layout::sizes), options);
  }

  /// Copies from host memory. In process, it enqueues the copy, and all uploads of a job together
  /// are at most CTXB_UPLOAD_MAX bytes. In activate, it waits for the copy, and there is no limit.
  ///
  /// @param destination  the buffer.
  /// @param source       the values. They may change when the call has returned.
  /// @param count        how many values.
  /// @param first        the buffer's element that gets the first one.
  /// @throws Failure  CTXB_ERROR_INVALID_ARGUMENT if the values do not fit into the buffer or
  ///                  exceed the limit; CTXB_ERROR_CONTEXT_LOST; CTXB_ERROR_DRIVER.
  template <class T>
  void upload(const DeviceBuffer<T>& destination, const T* source, std::size_t count,
              std::size_t first = 0) const {
    check_range("upload", destination.size(), first, count);
    if (count != 0) {
      detail::check_success(
          gpu_->calls().upload(gpu_->host(), raw_, destination.address() + first * sizeof(T),
                               source, static_cast<std::uint64_t>(count) * sizeof(T)),
          "uploading to device memory");
    }
  }

  /// Sets a module's variable. Waiting, limits and errors are those of upload.
  template <class T>
  void set(const Global<T>& variable, const T& value) const {
    detail::check_success(gpu_->calls().upload(gpu_->host(), raw_, variable.address(), &value,
                                               static_cast<std::uint64_t>(sizeof(T))),
                          "setting a variable");
  }

  /// Enqueues a fill of a whole buffer with zeros.
  ///
  /// @throws Failure  CTXB_ERROR_CONTEXT_LOST; CTXB_ERROR_DRIVER.
  template <class T>
  void clear(const DeviceBuffer<T>& destination) const {
    static_assert(sizeof(T) % 4 == 0, "memory is cleared in words of 4 bytes");
    if (destination.size() != 0) {
      detail::check_success(
          gpu_->calls().clear(gpu_->host(), raw_, destination.address(), destination.bytes()),
          "clearing device memory");
    }
  }

  /// Enqueues a copy of the first `count` values of one buffer to another one.
  ///
  /// @throws Failure  CTXB_ERROR_INVALID_ARGUMENT if one of the buffers is too small;
  ///                  CTXB_ERROR_CONTEXT_LOST; CTXB_ERROR_DRIVER.
  template <class T>
  void copy(const DeviceBuffer<T>& destination, const DeviceBuffer<T>& source,
            std::size_t count) const {
    check_range("copy", destination.size(), 0, count);
    check_range("copy", source.size(), 0, count);
    if (count != 0) {
      detail::check_success(
          gpu_->calls().copy(gpu_->host(), raw_, destination.address(), source.address(),
                             static_cast<std::uint64_t>(count) * sizeof(T)),
          "copying on the device");
    }
  }

  /// The CUstream, for plug-ins that call the driver themselves.
  [[nodiscard]] void* raw_stream() const noexcept { return raw_; }

 protected:
  const detail::Gpu& gpu() const noexcept { return *gpu_; }

 private:
  ctxb_launch launch_of(const Kernel& kernel, const LaunchShape& shape, std::uint32_t count,
                        const std::uint32_t* sizes) const noexcept {
    ctxb_launch raw{};
    raw.size = sizeof(raw);
    raw.argument_count = count;
    raw.kernel = kernel.handle;
    raw.stream = raw_;
    raw.grid[0] = shape.grid.x;
    raw.grid[1] = shape.grid.y;
    raw.grid[2] = shape.grid.z;
    raw.block[0] = shape.block.x;
    raw.block[1] = shape.block.y;
    raw.block[2] = shape.block.z;
    raw.shared_bytes = shape.shared_bytes;
    raw.argument_sizes = sizes;
    return raw;
  }

  static ctxb_launch_options options_of(const LaunchShape& shape) noexcept {
    ctxb_launch_options options{};
    options.size = sizeof(options);
    options.flags = shape.flags;
    options.cluster[0] = shape.cluster.x;
    options.cluster[1] = shape.cluster.y;
    options.cluster[2] = shape.cluster.z;
    options.priority = shape.priority;
    return options;
  }

  // It is small, so that the compiler inlines it. The rare cases are in a function of their own.
  void enqueue(const Kernel& kernel, const ctxb_launch& raw,
               const ctxb_launch_options& options) const {
    const ctxb_launch_extension* const launches = gpu_->launches();
    if (launches == nullptr || kernel.handle == nullptr) return enqueue_old(kernel, raw, options);
    const ctxb_status status = launches->launch(gpu_->host(), &raw, &options);
    if (status < 0) refuse(kernel, status);
  }

  // For a host without CTXB_EXT_LAUNCH, and for a kernel that was never looked up.
  void enqueue_old(const Kernel& kernel, const ctxb_launch& raw,
                   const ctxb_launch_options& options) const {
    if (kernel.handle == nullptr) refuse(kernel, CTXB_ERROR_WRONG_STATE);
    const bool plain = options.packed == nullptr && options.flags == 0 &&
                       (options.cluster[0] | options.cluster[1] | options.cluster[2]) == 0;
    const ctxb_status status = plain
                                   ? gpu_->calls().launch(gpu_->host(), &raw)
                                   : gpu_->required_launches().launch(gpu_->host(), &raw, &options);
    if (status < 0) refuse(kernel, status);
  }

  [[noreturn]] static void refuse(const Kernel& kernel, ctxb_status status) {
    throw Failure(
        status, std::string("launching the kernel '") + kernel.name + "': " + status_text(status));
  }

  static void check_range(const char* what, std::size_t size, std::size_t first,
                          std::size_t count) {
    if (first > size || count > size - first) {
      throw Failure(CTXB_ERROR_INVALID_ARGUMENT,
                    std::string(what) + " of " + std::to_string(count) + " values at " +
                        std::to_string(first) + " goes beyond the buffer's " +
                        std::to_string(size));
    }
  }

  const detail::Gpu* gpu_;
  void* raw_;
};

template <class... Arguments>
void Kernel::launch(const Stream& stream, const Extent3& grid, const Extent3& block,
                    const Arguments&... arguments) const {
  LaunchShape shape;
  shape.grid = grid;
  shape.block = block;
  stream.launch(*this, shape, arguments...);
}

}  // namespace ctxbroker::sdk
