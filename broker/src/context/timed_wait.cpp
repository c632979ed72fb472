// SPDX-License-Identifier: Apache-2.0
#include "context/timed_wait.hpp"

#include <algorithm>
#include <thread>

#include "context/open_captures.hpp"

namespace ctxbroker::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Short work is looked for without sleeping; for long work a late answer costs little.
constexpr std::chrono::microseconds eager{100};
constexpr std::chrono::microseconds longest_nap{500};

}  // namespace

CUresult ask_until_ready(const std::function<CUresult()>& query,
                         std::chrono::nanoseconds limit) noexcept {
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const CUresult status = query();
    if (status != CUDA_ERROR_NOT_READY) return status;
    const auto waited = Clock::now() - begin;
    if (limit > std::chrono::nanoseconds::zero() && waited > limit) return CUDA_ERROR_TIMEOUT;
    if (waited < eager) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min<Clock::duration>(longest_nap, waited / 8));
    }
  }
}

CUresult wait_for(const DriverTable& driver, CUstream stream,
                  std::chrono::nanoseconds limit) noexcept {
  const BesideCaptures beside(driver);
  if (limit <= std::chrono::nanoseconds::zero()) return driver.stream_synchronize(stream);
  return ask_until_ready([&] { return driver.stream_query(stream); }, limit);
}

CUresult wait_for_event(const DriverTable& driver, CUevent event,
                        std::chrono::nanoseconds limit) noexcept {
  const BesideCaptures beside(driver);
  if (limit <= std::chrono::nanoseconds::zero()) return driver.event_synchronize(event);
  return ask_until_ready([&] { return driver.event_query(event); }, limit);
}

}  // namespace ctxbroker::detail
