// SPDX-License-Identifier: Apache-2.0
// The device that a probing process measures, with short functions for work on it. A failed call
// throws Error, except where the probe measures the status itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "driver/driver.hpp"

namespace ctxbroker::detail {

// Releases nothing, because the process ends with the probe.
class Subject {
 public:
  // Retains the primary context and makes it current.
  Subject(const Driver& driver, int ordinal);

  const DriverTable& table() const noexcept { return driver_.table; }
  const Driver& driver() const noexcept { return driver_; }
  CUdevice device() const noexcept { return device_; }
  CUcontext primary() const noexcept { return primary_; }

  void check_call(CUresult status, const char* call) const;
  // Throws when the driver lacks an optional function.
  void check_entry(bool there, const char* call) const {
    if (!there) refuse_missing(call);
  }

  CUcontext private_context() const;  // leaves the current context unchanged
  // Splits the device once into groups of the smallest size. Throws when there are fewer than
  // `least`.
  std::vector<CUdevResource> smallest_groups(std::size_t least = 1) const;
  std::vector<CUdevResource> split(unsigned int least) const;
  CUcontext green(CUdevResource resource) const;

  // The following functions work in the current context.
  CUfunction kernel(const char* name) const;  // loads the module, which stays loaded
  CUdeviceptr memory(std::size_t bytes) const;
  CUresult launch(CUfunction kernel, CUstream stream, CUdeviceptr argument) const;
  void set_word(CUdeviceptr address, unsigned int value) const;
  CUresult read_word(CUdeviceptr address, unsigned int* value) const;
  CUstream stream() const;  // non-blocking

  void push(CUcontext context) const;
  void pop() const;

 private:
  [[noreturn]] void refuse_missing(const char* call) const;

  const Driver& driver_;
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext primary_ = nullptr;
};

// Makes a context current for a scope.
class Inside {
 public:
  Inside(const Subject& subject, CUcontext context) : subject_(subject) { subject.push(context); }
  ~Inside();
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const Subject& subject_;
};

// The probes. Each runs in a process of its own and reports its answers through tell_value.
void probe_shield(const Subject& subject);
void probe_fault(const Subject& subject);
void probe_memory(const Subject& subject);
void probe_stream(const Subject& subject);
void probe_partition(const Subject& subject);
void probe_waits_shared(const Subject& subject);
void probe_waits_private(const Subject& subject);
void probe_waits_green(const Subject& subject);

}  // namespace ctxbroker::detail
