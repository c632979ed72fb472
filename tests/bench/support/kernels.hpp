// SPDX-License-Identifier: Apache-2.0
// The benchmarks' kernels, loaded into the current context.
#pragma once

#include <cstdint>

#include "support/checked_driver.hpp"

namespace ctxbroker::bench {

// Machine code for sm_90 and PTX for the rest, as one image.
const void* kernel_image() noexcept;
// The kernel of the sample plug-in "gain", likewise.
const void* gain_image() noexcept;
// The kernels of the sample plug-ins "exposure" and "merge".
const void* exposure_image() noexcept;
const void* merge_image() noexcept;

// A module in the context that is current when it is made; it is to be current again at the end.
class Module {
 public:
  Module(const CheckedDriver& driver, const void* image);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  CUfunction function(const char* name) const;

 private:
  const CheckedDriver& driver_;
  CUmodule module_ = nullptr;
};

struct Grid {
  unsigned blocks = 1;
  unsigned threads = 1;
  unsigned rows = 1;
};

inline CUresult launch(const CheckedDriver& driver, CUfunction function, Grid grid, CUstream stream,
                       void** arguments) {
  return driver.cuLaunchKernel(function, grid.blocks, grid.rows, 1, grid.threads, 1, 1, 0, stream,
                               arguments, nullptr);
}

// How the kernel "work" is made to last: measured with every multiprocessor full, in the context
// that is current.
class Pace {
 public:
  static constexpr unsigned threads = 256;                // of one block
  static constexpr unsigned blocks_at_once = 2048 / 256;  // on one multiprocessor

  Pace(const CheckedDriver& driver, CUfunction work, int multiprocessors);
  // For a block that lasts so many microseconds on a full device.
  unsigned rounds(double microseconds) const;

 private:
  double rounds_per_microsecond_ = 0;
};

}  // namespace ctxbroker::bench
