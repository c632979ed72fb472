#include "context/wait.hpp"

#include <algorithm>
#include <thread>

namespace ctxbroker::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Short work is looked for without sleeping; for long work a late answer costs little.
constexpr std::chrono::microseconds eager{100};
constexpr std::chrono::microseconds longest_nap{500};

}  // namespace

CUresult wait_for(const DriverTable& driver, CUstream stream,
                  std::chrono::milliseconds limit) noexcept {
  if (limit <= std::chrono::milliseconds::zero()) return driver.stream_synchronize(stream);
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const CUresult status = driver.stream_query(stream);
    if (status != CUDA_ERROR_NOT_READY) return status;
    const auto waited = Clock::now() - begin;
    if (waited > limit) return CUDA_ERROR_TIMEOUT;
    if (waited < eager) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min<Clock::duration>(longest_nap, waited / 8));
    }
  }
}

}  // namespace ctxbroker::detail
