// SPDX-License-Identifier: Apache-2.0
// Tells brokers what calls that count as the host's do to primary contexts. In a program that does
// not know the broker, the host's calls are those of all libraries that are no tenant's.
#pragma once

#include <string>

#include "driver/driver_table.hpp"

namespace ctxbroker::detail {

// Called on the thread that calls the driver, after the driver has returned.
class PrimaryWatch {
 public:
  virtual ~PrimaryWatch() = default;
  // The host has retained the device's primary context.
  virtual void primary_retained(CUdevice device) noexcept = 0;
  // The driver has refused to destroy it, because a shield stands. `from` is where the call returns
  // to.
  virtual void primary_kept(const char* function, CUdevice device, const void* from) noexcept = 0;
};

// Borrows the watch until stop_watching_primaries, which waits until no thread is in it. Any
// thread. The first throws std::bad_alloc.
void watch_primaries(PrimaryWatch& watch);
void stop_watching_primaries(const PrimaryWatch& watch) noexcept;

// For the rules.
void report_retained(CUdevice device) noexcept;
void report_kept(const char* function, CUdevice device, const void* from) noexcept;

// Returns the file of the library whose code made the driver call that returns to `from`: the
// innermost one among the callers that does not only pass calls on, as the runtime library does.
// Slow. Throws std::bad_alloc. Any thread.
std::string library_that_called(const void* from);

}  // namespace ctxbroker::detail
