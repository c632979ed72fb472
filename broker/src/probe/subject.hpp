// The device that a probing process measures, and short ways to work on it. A failed call throws
// Error, unless the call's answer is what is measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "driver/driver.hpp"

namespace ctxbroker::detail {

// Owns nothing: the process ends with the probe, whatever is left.
class Subject {
 public:
  // The primary is retained and current.
  Subject(const Driver& driver, int ordinal);

  const DriverTable& table() const noexcept { return driver_.table; }
  const Driver& driver() const noexcept { return driver_; }
  CUdevice device() const noexcept { return device_; }
  CUcontext primary() const noexcept { return primary_; }

  void need(CUresult status, const char* call) const;
  // Like need, for what a driver may lack: throws when it does.
  void need_entry(bool there, const char* call) const {
    if (!there) refuse_missing(call);
  }

  CUcontext private_context() const;  // not current afterwards
  // Groups of the smallest size, of one split.
  std::vector<CUdevResource> smallest_groups() const;
  std::vector<CUdevResource> split(unsigned int least) const;
  CUcontext green(CUdevResource resource, CUgreenCtx* handle = nullptr) const;

  // In the current context.
  CUfunction kernel(const char* name) const;  // loads the module, which stays
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

// The probes, one to a process; each tells its answers.
void probe_shield(const Subject& subject);
void probe_fault(const Subject& subject);
void probe_memory(const Subject& subject);
void probe_stream(const Subject& subject);
void probe_partition(const Subject& subject);
void probe_waits_shared(const Subject& subject);
void probe_waits_private(const Subject& subject);
void probe_waits_green(const Subject& subject);

}  // namespace ctxbroker::detail
