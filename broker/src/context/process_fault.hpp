// The end of CUDA in this process. A kernel that faults, in whatever context, ends every context of
// the process on every device, for good: there is nothing to renew.
#pragma once

#include <atomic>

#include "context/tenant_identity.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// One per broker; set once. Any thread.
class ProcessFault {
 public:
  // CUDA_SUCCESS while there was none.
  CUresult status() const noexcept { return status_.load(std::memory_order_acquire); }
  bool happened() const noexcept { return status() != CUDA_SUCCESS; }

  // Remembers `status` when it is a fault (is_process_fault); the first one is recorded as an
  // error, for the tenant whose call it was. Nothing otherwise.
  void report_status(CUresult status, const DriverTable& driver, int device,
                     const TenantIdentity& tenant) noexcept;

 private:
  std::atomic<CUresult> status_{CUDA_SUCCESS};
};

}  // namespace ctxbroker::detail
