// SPDX-License-Identifier: Apache-2.0
// The driver's own functions, for tests that look at what the broker did to a thread.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

namespace ctxbroker {

// Of the driver that is loaded already from this file.
class RawDriver {
 public:
  explicit RawDriver(const std::string& path);

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
  // Calls a function that takes a device and nothing else; what it returned.
  CUresult on_device(const char* symbol, int device) const;
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
  // Runs a kernel that faults in the current context, which ends CUDA in the process; what waiting
  // for it returned.
  CUresult fault() const;

 private:
  template <typename Function>
  Function* function(const char* symbol) const;
  void* library_;
};

// A context for as long as this lives.
class Entered {
 public:
  Entered(const RawDriver& driver, CUcontext context) : driver_(driver) { driver.push(context); }
  // What cannot be popped ends the test program.
  ~Entered() { driver_.pop(); }  // NOLINT(bugprone-exception-escape)
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  const RawDriver& driver_;
};

}  // namespace ctxbroker
