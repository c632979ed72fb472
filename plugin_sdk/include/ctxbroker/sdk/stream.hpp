// Enqueuing work on the stream that came with an activation or a job.
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

// A kernel of one of the plug-in's modules, for one activation; made by Activation::kernel. Cheap
// to copy; look it up again in the next activate.
struct Kernel {
  const ctxb_kernel* handle = nullptr;
  const char* name = "";  // the author's own literal

  // As Stream::launch: kernel.launch(job, grid, block, out, in, 1.5F).
  template <class... Arguments>
  void launch(const Stream& stream, const Extent3& grid, const Extent3& block,
              const Arguments&... arguments) const;
};

// Work on it happens in order. Nothing here waits; all of it throws Failure. Valid for the length
// of the call that brought it.
class Stream {
 public:
  Stream(const detail::Gpu& gpu, void* raw) noexcept : gpu_(&gpu), raw_(raw) {}

  // Enqueues a launch. The arguments are the kernel's, in order and with its exact types (1.0 is a
  // double, 1.0f a float); a DeviceBuffer<T> is passed as T*. The host compares their number and
  // sizes with the kernel's, and names the one that is wrong.
  template <class... Arguments>
  void launch(const Kernel& kernel, const LaunchShape& shape, const Arguments&... arguments) const {
    using Layout = ArgumentLayout<Arguments...>;
    // One element more than needed, for a kernel without arguments.
    const void* const addresses[] = {detail::Argument<Arguments>::address(arguments)..., nullptr};
    ctxb_launch raw = launch_of(kernel, shape, Layout::count, Layout::sizes);
    raw.arguments = addresses;
    enqueue(kernel, raw, options_of(shape, Layout::signature));
  }

  // The same with the arguments in one piece, made by pack(...): for a kernel that is launched
  // often with the same ones, and to compare their offsets too. Needs CTXB_EXT_LAUNCH.
  template <class... Arguments>
  void launch_packed(const Kernel& kernel, const LaunchShape& shape,
                     const PackedArguments<Arguments...>& arguments) const {
    using Layout = ArgumentLayout<Arguments...>;
    ctxb_launch_options options = options_of(shape, Layout::signature);
    options.packed = arguments.data();
    options.packed_bytes = Layout::bytes;
    options.argument_offsets = Layout::offsets;
    enqueue(kernel, launch_of(kernel, shape, Layout::count, Layout::sizes), options);
  }

  // Enqueues a copy of `count` values to `destination`, from its element `first` on. In process all
  // uploads together are at most CTXB_UPLOAD_MAX bytes. `source` may be reused at once.
  template <class T>
  void upload(const DeviceBuffer<T>& destination, const T* source, std::size_t count,
              std::size_t first = 0) const {
    check_range("upload", destination.size(), first, count);
    if (count != 0) {
      detail::require_success(
          gpu_->calls().upload(gpu_->host(), raw_, destination.address() + first * sizeof(T),
                               source, static_cast<std::uint64_t>(count) * sizeof(T)),
          "uploading to device memory");
    }
  }

  // Enqueues giving a module's variable this value; the same limits.
  template <class T>
  void set(const Global<T>& variable, const T& value) const {
    detail::require_success(gpu_->calls().upload(gpu_->host(), raw_, variable.address(), &value,
                                                 static_cast<std::uint64_t>(sizeof(T))),
                            "setting a variable");
  }

  // Enqueues setting the whole buffer to zero bytes. Its size in bytes is a multiple of 4.
  template <class T>
  void clear(const DeviceBuffer<T>& destination) const {
    static_assert(sizeof(T) % 4 == 0, "memory is cleared in words of 4 bytes");
    if (destination.size() != 0) {
      detail::require_success(
          gpu_->calls().clear(gpu_->host(), raw_, destination.address(), destination.bytes()),
          "clearing device memory");
    }
  }

  // Enqueues a copy of the first `count` values from one buffer to another.
  template <class T>
  void copy(const DeviceBuffer<T>& destination, const DeviceBuffer<T>& source,
            std::size_t count) const {
    check_range("copy", destination.size(), 0, count);
    check_range("copy", source.size(), 0, count);
    if (count != 0) {
      detail::require_success(
          gpu_->calls().copy(gpu_->host(), raw_, destination.address(), source.address(),
                             static_cast<std::uint64_t>(count) * sizeof(T)),
          "copying on the device");
    }
  }

  // The CUstream, for plug-ins that call the driver themselves.
  void* raw_stream() const noexcept { return raw_; }

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

  static ctxb_launch_options options_of(const LaunchShape& shape,
                                        std::uint64_t signature) noexcept {
    ctxb_launch_options options{};
    options.size = sizeof(options);
    options.flags = shape.flags;
    options.cluster[0] = shape.cluster.x;
    options.cluster[1] = shape.cluster.y;
    options.cluster[2] = shape.cluster.z;
    options.priority = shape.priority;
    options.signature = signature;
    return options;
  }

  // Small, so that it becomes part of the launch; what is rarely needed stands apart.
  void enqueue(const Kernel& kernel, const ctxb_launch& raw,
               const ctxb_launch_options& options) const {
    const ctxb_launch_extension* const launches = gpu_->launches();
    if (launches == nullptr || kernel.handle == nullptr) return enqueue_old(kernel, raw, options);
    const ctxb_status status = launches->launch(gpu_->host(), &raw, &options);
    if (status < 0) refuse(kernel, status);
  }

  // On a host without CTXB_EXT_LAUNCH, or a kernel that was not looked up in this activation.
  void enqueue_old(const Kernel& kernel, const ctxb_launch& raw,
                   const ctxb_launch_options& options) const {
    if (kernel.handle == nullptr) refuse(kernel, CTXB_ERROR_WRONG_STATE);
    const bool plain = options.packed == nullptr && options.flags == 0 &&
                       (options.cluster[0] | options.cluster[1] | options.cluster[2]) == 0;
    const ctxb_status status = plain ? gpu_->calls().launch(gpu_->host(), &raw)
                                     : gpu_->need_launches().launch(gpu_->host(), &raw, &options);
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
