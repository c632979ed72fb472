// SPDX-License-Identifier: Apache-2.0
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

inline constexpr unsigned int portable_cluster = 8;  // more needs a word to the driver
inline constexpr unsigned int largest_cluster = 16;

}  // namespace ctxbroker::detail
