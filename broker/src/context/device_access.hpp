// SPDX-License-Identifier: Apache-2.0
// Things that all parts of UsedDevice work with: the driver, the device, and whom to tell of
// problems.
#pragma once

#include <atomic>
#include <cstddef>

#include "context/tenant_identity.hpp"
#include "driver/driver.hpp"
#include "driver/driver_error.hpp"
#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// The end of CUDA in this process. A kernel that faults ends every context of the process on every
// device for good, whatever context it runs in. One per broker; set once. Any thread.
class ProcessFault {
 public:
  // CUDA_SUCCESS while there was none.
  CUresult status() const noexcept { return status_.load(std::memory_order_acquire); }
  bool happened() const noexcept { return status() != CUDA_SUCCESS; }

  // Remembers `status` when it is a fault (is_process_fault), and records the first one as an error
  // of the tenant whose call it was. Ignores any other status.
  void report_status(CUresult status, const DriverTable& driver, int device,
                     const TenantIdentity& tenant) noexcept;

  // Work that hung was under way when CUDA ended, so nobody can tell whether it was the cause.
  bool ended_hung_work() const noexcept { return ended_hung_work_.load(std::memory_order_acquire); }
  void report_ended_hung_work() noexcept {
    ended_hung_work_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<CUresult> status_{CUDA_SUCCESS};
  std::atomic<bool> ended_hung_work_{false};
};

// Borrows everything, and can be copied freely.
struct DeviceAccess {
  const Driver& driver;
  int ordinal;
  const TenantIdentity& host;
  ProcessFault& fault;

  const DriverTable& table() const noexcept { return driver.table; }
  CUdevice handle() const noexcept { return driver.handles[static_cast<std::size_t>(ordinal)]; }
  unsigned multiprocessors() const noexcept {
    return static_cast<unsigned>(driver.devices[static_cast<std::size_t>(ordinal)].multiprocessors);
  }
  CallOwner host_call() const noexcept { return {ordinal, host.name}; }

  // Remembers a fault of the process. Returns `status`.
  CUresult report_status(CUresult status) const noexcept;
  // One line about this device: "device 0" and `text`. Never throws.
  void log(Severity severity, const char* topic, const std::string& text) const noexcept;
  // Logs that something could not be ended ("'s shield could not be taken down"). Logs nothing for
  // a success, at the driver's exit, and after a fault of the process, which is logged once.
  void report_failed_end(const char* what, CUresult status) const noexcept;
};

}  // namespace ctxbroker::detail
