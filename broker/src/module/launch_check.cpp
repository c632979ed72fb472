// SPDX-License-Identifier: Apache-2.0
#include "module/launch_check.hpp"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace ctxbroker::detail {
namespace {

constexpr char axis_names[] = "xyz";
constexpr std::uint32_t known_flags =
    CTXB_LAUNCH_COOPERATIVE | CTXB_LAUNCH_PROGRAMMATIC | CTXB_LAUNCH_PRIORITY;

[[gnu::format(printf, 2, 3)]] bool refuse(RefusalText& refusal, const char* format, ...) noexcept {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(refusal.text, sizeof refusal.text, format, arguments);
  va_end(arguments);
  return false;
}

bool extents_fit(const Kernel& kernel, const char* what, const std::uint32_t (&extent)[3],
                 const unsigned int (&limit)[3], RefusalText& refusal) noexcept {
  for (int axis = 0; axis < 3; ++axis) {
    if (extent[axis] == 0 || extent[axis] > limit[axis]) {
      return refuse(refusal, "kernel \"%s\": %s.%c is %u; it must be 1 to %u", kernel.name.c_str(),
                    what, axis_names[axis], extent[axis], limit[axis]);
    }
  }
  return true;
}

bool threads_fit(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                 RefusalText& refusal) noexcept {
  const std::uint64_t threads =
      std::uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];  // each is below 2^21
  const unsigned int most = std::min(kernel.block_threads, limits.block_threads);
  if (threads <= most) return true;
  return refuse(refusal, "kernel \"%s\": a block of %u x %u x %u has %llu threads; at most %u fit",
                kernel.name.c_str(), launch.block[0], launch.block[1], launch.block[2],
                static_cast<unsigned long long>(threads), most);
}

bool shared_fits(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                 RefusalText& refusal) noexcept {
  const std::uint64_t bytes = std::uint64_t{launch.shared_bytes} + kernel.static_shared_bytes;
  const unsigned int most = limits.most_shared_bytes();
  if (bytes <= most) return true;
  return refuse(refusal,
                "kernel \"%s\": %u bytes of dynamic and %u of static shared memory; at most %u fit",
                kernel.name.c_str(), launch.shared_bytes, kernel.static_shared_bytes, most);
}

// ---- Arguments -------------------------------------------------------------------------------

bool count_fits(const Kernel& kernel, const ctxb_launch& launch, RefusalText& refusal) noexcept {
  if (!kernel.arguments_known || launch.argument_count == kernel.arguments.size()) return true;
  return refuse(refusal, "kernel \"%s\" takes %zu arguments; the launch gives %u",
                kernel.name.c_str(), kernel.arguments.size(), launch.argument_count);
}

bool sizes_fit(const Kernel& kernel, const ctxb_launch& launch, RefusalText& refusal) noexcept {
  if (!kernel.arguments_known) return true;
  for (std::uint32_t index = 0; index < launch.argument_count; ++index) {
    const KernelArgument& taken = kernel.arguments[index];
    if (launch.argument_sizes[index] != taken.bytes) {
      return refuse(refusal,
                    "kernel \"%s\": argument %u (of %u) has %u bytes; the kernel takes %u there, "
                    "at offset %u",
                    kernel.name.c_str(), index + 1, launch.argument_count,
                    launch.argument_sizes[index], taken.bytes, taken.offset);
    }
  }
  return true;
}

bool pointers_fit(const Kernel& kernel, const ctxb_launch& launch, RefusalText& refusal) noexcept {
  if (!count_fits(kernel, launch, refusal)) return false;
  if (launch.argument_count == 0) return true;
  if (launch.arguments == nullptr || launch.argument_sizes == nullptr) {
    return refuse(refusal, "kernel \"%s\": arguments or argument_sizes is null",
                  kernel.name.c_str());
  }
  for (std::uint32_t index = 0; index < launch.argument_count; ++index) {
    if (launch.arguments[index] == nullptr) {
      return refuse(refusal, "kernel \"%s\": argument %u (of %u) is null", kernel.name.c_str(),
                    index + 1, launch.argument_count);
    }
  }
  return sizes_fit(kernel, launch, refusal);
}

bool offsets_fit(const Kernel& kernel, const ctxb_launch& launch,
                 const ctxb_launch_options& options, RefusalText& refusal) noexcept {
  if (!kernel.arguments_known || options.argument_offsets == nullptr) return true;
  for (std::uint32_t index = 0; index < launch.argument_count; ++index) {
    const KernelArgument& taken = kernel.arguments[index];
    if (options.argument_offsets[index] != taken.offset) {
      return refuse(refusal,
                    "kernel \"%s\": argument %u (of %u), %u bytes, is at offset %u of the packed "
                    "arguments; the kernel takes it at %u",
                    kernel.name.c_str(), index + 1, launch.argument_count, taken.bytes,
                    options.argument_offsets[index], taken.offset);
    }
  }
  return true;
}

bool packed_fits(const Kernel& kernel, const ctxb_launch& launch,
                 const ctxb_launch_options& options, RefusalText& refusal) noexcept {
  const char* name = kernel.name.c_str();
  if (launch.arguments != nullptr) {
    return refuse(refusal, "kernel \"%s\": both arguments and packed are given", name);
  }
  if (launch.argument_count != 0) {
    if (launch.argument_sizes == nullptr) {
      return refuse(refusal, "kernel \"%s\": argument_sizes is null", name);
    }
    if (!count_fits(kernel, launch, refusal) || !sizes_fit(kernel, launch, refusal) ||
        !offsets_fit(kernel, launch, options, refusal)) {
      return false;
    }
  }
  if (!kernel.arguments_known) return true;
  // A struct that holds them all may be longer, up to a multiple of its alignment.
  constexpr std::uint64_t most_padding = 15;
  const std::uint64_t end = kernel.argument_bytes();
  if (options.packed_bytes >= end && options.packed_bytes <= end + most_padding) return true;
  return refuse(refusal, "kernel \"%s\": %llu bytes of packed arguments; the kernel takes %llu",
                name, static_cast<unsigned long long>(options.packed_bytes),
                static_cast<unsigned long long>(end));
}

// ---- Attributes ------------------------------------------------------------------------------

bool cluster_fits(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                  const ctxb_launch_options& options, RefusalText& refusal) noexcept {
  const char* name = kernel.name.c_str();
  const std::uint32_t(&size)[3] = options.cluster;
  if (!limits.clusters) {
    refusal.never = true;
    return refuse(refusal,
                  "kernel \"%s\": a cluster of %u x %u x %u blocks; this device has no clusters, "
                  "which need compute capability 9.0",
                  name, size[0], size[1], size[2]);
  }
  for (int axis = 0; axis < 3; ++axis) {
    if (size[axis] == 0 || launch.grid[axis] % size[axis] != 0) {
      return refuse(refusal,
                    "kernel \"%s\": grid.%c is %u; it must be a multiple of the cluster's %u", name,
                    axis_names[axis], launch.grid[axis], size[axis]);
    }
  }
  std::uint64_t blocks = 1;
  for (const std::uint32_t extent : size) {
    blocks = std::min<std::uint64_t>(blocks * extent, UINT32_MAX);
  }
  if (blocks <= largest_cluster) return true;
  return refuse(refusal, "kernel \"%s\": a cluster of %u x %u x %u has %llu blocks; at most %u fit",
                name, size[0], size[1], size[2], static_cast<unsigned long long>(blocks),
                largest_cluster);
}

bool attributes_fit(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                    const ctxb_launch_options& options, RefusalText& refusal) noexcept {
  if ((options.flags & ~known_flags) != 0) {
    return refuse(refusal, "kernel \"%s\": flags 0x%x are not known; this host knows 0x%x",
                  kernel.name.c_str(), options.flags & ~known_flags, known_flags);
  }
  if ((options.flags & CTXB_LAUNCH_COOPERATIVE) != 0 && !limits.cooperative) {
    refusal.never = true;
    return refuse(refusal, "kernel \"%s\": this device has no cooperative launches",
                  kernel.name.c_str());
  }
  return !has_cluster(options) || cluster_fits(kernel, limits, launch, options, refusal);
}

}  // namespace

bool shape_fits(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                const ctxb_launch_options* options, RefusalText& refusal) noexcept {
  return extents_fit(kernel, "grid", launch.grid, limits.grid, refusal) &&
         extents_fit(kernel, "block", launch.block, limits.block, refusal) &&
         threads_fit(kernel, limits, launch, refusal) &&
         shared_fits(kernel, limits, launch, refusal) &&
         (options == nullptr || attributes_fit(kernel, limits, launch, *options, refusal));
}

bool arguments_fit(const Kernel& kernel, const ctxb_launch& launch,
                   const ctxb_launch_options* options, RefusalText& refusal) noexcept {
  if (options == nullptr || options->packed == nullptr) {
    return pointers_fit(kernel, launch, refusal);
  }
  return packed_fits(kernel, launch, *options, refusal);
}

bool blocks_fit_together(const Kernel& kernel, const ctxb_launch& launch, unsigned int each,
                         unsigned int multiprocessors, RefusalText& refusal) noexcept {
  const std::uint64_t most = std::uint64_t{each} * multiprocessors;
  // Three factors below 2^31, 2^16 and 2^16 fit into 64 bits.
  const std::uint64_t blocks = std::uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  if (blocks <= most) return true;
  return refuse(refusal,
                "kernel \"%s\": a cooperative launch of %llu blocks; at most %llu run at once, %u "
                "on each of %u multiprocessors",
                kernel.name.c_str(), static_cast<unsigned long long>(blocks),
                static_cast<unsigned long long>(most), each, multiprocessors);
}

}  // namespace ctxbroker::detail
