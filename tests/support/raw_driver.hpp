// SPDX-License-Identifier: Apache-2.0
// The driver's own functions, past the gate: for tests that look at what the broker did to a
// thread.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "support/driver_by_name.hpp"

namespace ctxbroker {

class RawDriver {
 public:
  // Takes the driver that is loaded already from this file.
  explicit RawDriver(const std::string& path);

  // A function of the driver, or null.
  void* find(const char* symbol) const noexcept;
  template <typename... Parameters>
  CUresult call(const char* symbol, Parameters... arguments) const {
    return call_found(find(symbol), symbol, arguments...);
  }
  // Throws std::runtime_error unless the call succeeds.
  template <typename... Parameters>
  void check_call(const char* symbol, Parameters... arguments) const {
    check_success(call(symbol, arguments...), symbol);
  }

  void init() const;
  CUcontext make_context() const;  // current afterwards
  void destroy_context(CUcontext context) const;
  CUcontext current() const;
  // The calling thread's whole stack, top first; it is put back.
  std::vector<CUcontext> stack() const;
  void pop_all() const;
  std::size_t free_memory() const;             // of the current context's device
  CUresult allocate(std::size_t bytes) const;  // in the current context, for good
  CUcontext retain_primary(int device) const;
  bool primary_is_active(int device) const;
  unsigned primary_flags(int device) const;
  void set_primary_flags(int device, unsigned flags) const;
  CUresult synchronize() const;  // the current context
  bool can_access_peer(int device, int peer) const;
  CUresult fill(CUdeviceptr address, unsigned char value, std::size_t bytes) const;
  // Enqueues a fill with floats.
  CUresult fill(CUdeviceptr address, float value, std::size_t count, CUstream stream) const;
  // Reads device memory after all work in the stream.
  CUresult fetch(std::vector<float>& values, CUdeviceptr address, CUstream stream) const;
  // Writes it after all work in the stream, and waits.
  CUresult store(const std::vector<float>& values, CUdeviceptr address, CUstream stream) const;
  CUresult launch_host_function(CUstream stream, CUhostFn function, void* data) const;
  void set_current(CUcontext context) const;
  void push(CUcontext context) const;
  void pop_if_any() const;
  void pop() const;
  // Runs a kernel that faults in the current context, which ends CUDA in the process. Returns the
  // status of waiting for it.
  CUresult fault() const;

 private:
  void* library_;
};

// A context for as long as this lives.
class Entered {
 public:
  Entered(const RawDriver& driver, CUcontext context) : driver_(driver) { driver.push(context); }
  // Ends the test program if the context cannot be popped.
  ~Entered() { driver_.pop(); }  // NOLINT(bugprone-exception-escape)
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  const RawDriver& driver_;
};

}  // namespace ctxbroker
