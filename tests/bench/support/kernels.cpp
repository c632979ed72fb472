// SPDX-License-Identifier: Apache-2.0
#include "support/kernels.hpp"

#include <algorithm>
#include <cmath>

#include "bench_driver_kernels.hpp"
#include "support/statistics.hpp"

namespace ctxbroker::bench {

const void* kernel_image() noexcept {
  return bench_driver_kernels::kernels.data;
}

const void* gain_image() noexcept {
  return bench_driver_kernels::gain.data;
}

const void* exposure_image() noexcept {
  return bench_driver_kernels::exposure.data;
}

const void* merge_image() noexcept {
  return bench_driver_kernels::merge.data;
}

Module::Module(const CheckedDriver& driver, const void* image) : driver_(driver) {
  CTXB_CALL(driver, cuModuleLoadData, &module_, image);
}

Module::~Module() {
  driver_.cuModuleUnload(module_);
}

CUfunction Module::function(const char* name) const {
  CUfunction found = nullptr;
  CTXB_CALL(driver_, cuModuleGetFunction, &found, module_, name);
  return found;
}

Pace::Pace(const CheckedDriver& driver, CUfunction work, int multiprocessors) {
  constexpr double long_enough =
      2e7;  // ns: the launch itself, and slow clocks at first, count little
  const unsigned blocks = static_cast<unsigned>(multiprocessors) * blocks_at_once;
  float* sink = nullptr;
  unsigned rounds = 16;
  void* arguments[] = {&rounds, &sink};
  for (int attempt = 0; attempt < 24; ++attempt, rounds *= 2) {
    const auto start = Clock::now();
    driver.check(launch(driver, work, {blocks, threads}, nullptr, arguments), "cuLaunchKernel");
    CTXB_CALL(driver, cuStreamSynchronize, nullptr);
    const double elapsed = nanoseconds_since(start);
    rounds_per_microsecond_ = rounds / (elapsed / 1000);
    if (elapsed > long_enough) return;
  }
}

unsigned Pace::rounds(double microseconds) const {
  return static_cast<unsigned>(std::max(1.0, std::round(rounds_per_microsecond_ * microseconds)));
}

}  // namespace ctxbroker::bench
