// The end of CUDA in this process. A kernel that faults, in whatever context, ends every context of
// the process on every device, for good: there is nothing to renew.
#pragma once

#include <atomic>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// One per broker; set once. Any thread.
class ProcessFault {
 public:
  // CUDA_SUCCESS while there was none.
  CUresult status() const noexcept { return status_.load(std::memory_order_acquire); }
  bool happened() const noexcept { return status() != CUDA_SUCCESS; }

  // True for the call that was the first to see it.
  bool raise(CUresult status) noexcept {
    CUresult none = CUDA_SUCCESS;
    return status_.compare_exchange_strong(none, status, std::memory_order_acq_rel);
  }

 private:
  std::atomic<CUresult> status_{CUDA_SUCCESS};
};

}  // namespace ctxbroker::detail
