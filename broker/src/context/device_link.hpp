// What every part of a device's hold works with: the device itself, and whom to tell.
#pragma once

#include <cstddef>

#include "context/process_fault.hpp"
#include "context/tenant_identity.hpp"
#include "driver/driver.hpp"
#include "driver/driver_error.hpp"

namespace ctxbroker::detail {

// All is borrowed. Copied freely.
struct DeviceLink {
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

  // Looks for a fault of the process, and returns what it got.
  CUresult report_status(CUresult status) const noexcept;
  // One line about this device: "device 0" and `text`. Never throws.
  void log(Severity severity, const char* topic, const std::string& text) const noexcept;
  // Says that something could not be ended ("'s shield could not be taken down"), unless all was
  // well, the driver is at its end, or CUDA ended in the process, which is said once.
  void report_failed_end(const char* what, CUresult status) const noexcept;
};

}  // namespace ctxbroker::detail
