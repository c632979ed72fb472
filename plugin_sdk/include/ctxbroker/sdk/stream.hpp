// Enqueuing work on the stream that came with an activation or a job.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "ctxbroker/sdk/device_buffer.hpp"
#include "ctxbroker/sdk/gpu.hpp"
#include "ctxbroker/sdk/launch_shape.hpp"

namespace ctxbroker::sdk {

// A kernel of one of the plug-in's modules, for one activation; made by Activation::kernel. Cheap
// to copy; look it up again in the next activate.
struct Kernel {
  const ctxb_kernel* handle = nullptr;
  const char* name = "";  // the author's own literal
};

namespace detail {

// What a kernel argument is: where its bytes are and how many.
template <class T>
struct Argument {
  static_assert(std::is_trivially_copyable_v<T>,
                "a kernel argument must be trivially copyable: a number, a device pointer or a "
                "struct of such");
  static const void* address(const T& value) { return &value; }
  static constexpr std::uint32_t size = static_cast<std::uint32_t>(sizeof(T));
};

template <class T>
struct Argument<DeviceBuffer<T>> {
  static const void* address(const DeviceBuffer<T>& buffer) { return &buffer.address(); }
  static constexpr std::uint32_t size = static_cast<std::uint32_t>(sizeof(std::uint64_t));
};

}  // namespace detail

// Work on it happens in order. Nothing here waits; all of it throws Failure. Valid for the length
// of the call that brought it.
class Stream {
 public:
  Stream(const detail::Gpu& gpu, void* raw) noexcept : gpu_(&gpu), raw_(raw) {}

  // Enqueues a launch. The arguments are the kernel's, in order and with its exact types (1.0 is a
  // double, 1.0f a float); a DeviceBuffer<T> is passed as T*. The host checks count and sizes.
  template <class... Arguments>
  void launch(const Kernel& kernel, const LaunchShape& shape, const Arguments&... arguments) const {
    // One element more than needed, for a kernel without arguments.
    const void* const addresses[] = {detail::Argument<Arguments>::address(arguments)..., nullptr};
    const std::uint32_t sizes[] = {detail::Argument<Arguments>::size..., 0};
    launch_raw(kernel, shape, addresses, sizes, static_cast<std::uint32_t>(sizeof...(Arguments)));
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
  void launch_raw(const Kernel& kernel, const LaunchShape& shape, const void* const* addresses,
                  const std::uint32_t* sizes, std::uint32_t count) const {
    ctxb_launch launch{};
    launch.size = sizeof(launch);
    launch.argument_count = count;
    launch.kernel = kernel.handle;
    launch.stream = raw_;
    launch.grid[0] = shape.grid.x;
    launch.grid[1] = shape.grid.y;
    launch.grid[2] = shape.grid.z;
    launch.block[0] = shape.block.x;
    launch.block[1] = shape.block.y;
    launch.block[2] = shape.block.z;
    launch.shared_bytes = shape.shared_bytes;
    launch.arguments = addresses;
    launch.argument_sizes = sizes;
    const ctxb_status status = kernel.handle == nullptr
                                   ? CTXB_ERROR_WRONG_STATE
                                   : gpu_->calls().launch(gpu_->host(), &launch);
    if (status < 0) {  // the text is built on failure only
      detail::require_success(status, std::string("launching the kernel '") + kernel.name + "'");
    }
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

}  // namespace ctxbroker::sdk
