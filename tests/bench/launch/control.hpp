// SPDX-License-Identifier: Apache-2.0
// What bench_launch tells its plug-ins to measure. The environment variable launch_control_variable
// holds the address of a LaunchControl, in decimal; each instance reads it when it is created.
#pragma once

#include <cstdint>

namespace ctxbroker::bench {

inline constexpr char launch_control_variable[] = "CTXB_BENCH_LAUNCH";

enum class Way {
  raw,        // cuLaunchKernel itself
  runtime,    // <<<>>>
  gpu,        // the extension of version 1.0
  extension,  // CTXB_EXT_LAUNCH from C
  packed,     // the same with packed arguments
  typed,      // the SDK's launch
};

// One launch: a kernel with five arguments that ends at once.
struct LaunchControl {
  Way way = Way::raw;
  unsigned count = 0;             // launches of one process call
  double nanoseconds = 0;         // out: of one launch
  std::uint64_t allocations = 0;  // out: of all of them, on this thread
  // Null, or where the driver refused.
  const char* failure = nullptr;

  // The raw driver: loads the module of `five` into the current context and finds it; launches it.
  void* (*load)(const void* image) = nullptr;
  int (*raw_launch)(void* function, void* stream, void** arguments) = nullptr;
  // With `<<<>>>`; null where the program has none.
  int (*runtime_launch)(void* stream, float* output, const float* input, unsigned count,
                        float factor, float offset) = nullptr;
  std::uint64_t (*allocations_so_far)() = nullptr;
};

}  // namespace ctxbroker::bench
