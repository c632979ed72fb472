// SPDX-License-Identifier: Apache-2.0
// A thing that is to be ended.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace ctxbroker::detail {

class Lease;
struct TenantIdentity;

// The place where a resource lives. It decides what ends the resource.
enum class Home {
  context,  // with the context: streams
  memory,   // with memory, modules and events: in the primary when the lease is green, which
            // outlives the green context
  device,   // of no context: pools and what comes of them, physical memory
};

// One value goes from the holder of the thing to Lease::give_back and to HungWork, which keeps it
// while it is put off.
struct Ending {
  std::shared_ptr<const TenantIdentity> tenant{};  // that has the thing; Lease::give_back sets it
  Home home = Home::memory;
  const char* what = "";    // static text: "device memory"; empty: it is not listed
  std::uint64_t bytes = 0;  // of device memory that stay taken until it is done
  bool may_wait = true;     // whether the driver's call can wait for work on the device
  bool quiet = false;       // the caller tells the host of it when it is put off
  std::function<CUresult()> call{};
  // Called with the status as soon as the thing has ended, perhaps on another thread and much
  // later.
  std::function<void(CUresult)> after{};
  // The thing is memory that `call` gives back to its store without waiting. It is put off behind
  // hung work only if that is known to be the tenant's.
  bool is_stored = false;
  // It is not begun while work is known to hang in any family on the device. The driver ends a
  // context only when all work on its device has ended, and makes no context meanwhile.
  bool is_behind_device = false;
  // The lease that the thing lives in; Lease::give_back sets it. Null: `call` needs no context.
  std::shared_ptr<Lease> lease{};

  // Makes the call where the thing lives, on a family's own thread or where that is not needed.
  // Lease::gone, without a call, when the thing has ended with its context.
  CUresult perform() const;
  // Says that it has ended with this status, and returns the status.
  CUresult settle(CUresult status) const {
    if (after) after(status);
    return status;
  }
};

}  // namespace ctxbroker::detail
