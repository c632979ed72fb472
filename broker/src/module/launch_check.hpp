// The check of a launch against what kernel and device allow. Each refusal names the kernel, the
// limit and the value that broke it.
#pragma once

#include "ctxbroker/plugin.h"
#include "driver/driver.hpp"
#include "module/kernel.hpp"

namespace ctxbroker::detail {

// Room for a refusal's text without allocation.
struct RefusalText {
  RefusalText() noexcept {  // NOLINT(cppcoreguidelines-pro-type-member-init): an empty text
    text[0] = '\0';
  }
  char text[256];
  bool never = false;  // the device cannot do it, whatever the numbers
};

// True when the launch's shape and attributes fit kernel and device; otherwise `refusal` says why
// not. The structs are whole; `options` may be null.
bool shape_fits(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                const ctxb_launch_options* options, RefusalText& refusal) noexcept;

// The same for its arguments.
bool arguments_fit(const Kernel& kernel, const ctxb_launch& launch,
                   const ctxb_launch_options* options, RefusalText& refusal) noexcept;

// Whether all blocks of a cooperative launch fit at once, when `each` multiprocessor takes so many.
bool blocks_fit_together(const Kernel& kernel, const ctxb_launch& launch, unsigned int each,
                         unsigned int multiprocessors, RefusalText& refusal) noexcept;

inline bool has_cluster(const ctxb_launch_options& options) noexcept {
  return (options.cluster[0] | options.cluster[1] | options.cluster[2]) != 0;
}

// Blocks in one cluster; a fitting one.
inline unsigned int cluster_blocks(const ctxb_launch_options& options) noexcept {
  return options.cluster[0] * options.cluster[1] * options.cluster[2];
}

// Nearly every launch: it needs no attribute and nothing allowed first, and fits as the two above
// would say. False says nothing: ask them.
inline bool surely_fits(const Kernel& kernel, const DeviceLimits& limits, const ctxb_launch& launch,
                        const ctxb_launch_options* options) noexcept {
  const auto fits = [](const std::uint32_t(&extent)[3], const unsigned int(&limit)[3]) {
    // 0 becomes more than any limit.
    return extent[0] - 1 < limit[0] && extent[1] - 1 < limit[1] && extent[2] - 1 < limit[2];
  };
  if (!fits(launch.grid, limits.grid) || !fits(launch.block, limits.block)) return false;
  const std::uint64_t threads = std::uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (threads > kernel.block_threads || threads > limits.block_threads) return false;
  if (launch.shared_bytes > kernel.dynamic_shared_bytes || !kernel.arguments_known) return false;
  const std::size_t count = kernel.arguments.size();
  bool same_types = false;
  if (options != nullptr) {
    if (options->flags != 0 || has_cluster(*options)) return false;
    same_types = options->signature == kernel.signature;
    if (options->packed != nullptr) {
      return same_types && launch.arguments == nullptr &&
             options->packed_bytes == kernel.argument_bytes();
    }
  }
  if (launch.argument_count != count) return false;
  if (count == 0) return true;
  if (launch.arguments == nullptr || launch.argument_sizes == nullptr) return false;
  bool missing = false;
  for (std::size_t index = 0; index < count; ++index) {
    missing |= launch.arguments[index] == nullptr;
  }
  std::uint32_t differs = 0;
  for (std::size_t index = same_types ? count : 0; index < count; ++index) {
    differs |= launch.argument_sizes[index] ^ kernel.arguments[index].bytes;
  }
  return !missing && differs == 0;
}

inline constexpr unsigned int portable_cluster = 8;  // more needs a word to the driver
inline constexpr unsigned int largest_cluster = 16;

}  // namespace ctxbroker::detail
