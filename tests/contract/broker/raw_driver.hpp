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

  CUcontext make_context() const;  // current afterwards
  void destroy_context(CUcontext context) const;
  CUcontext current() const;
  // The calling thread's whole stack, top first; it is put back.
  std::vector<CUcontext> stack() const;
  void pop_all() const;
  std::size_t free_memory() const;  // of the current context's device

 private:
  template <typename Function>
  Function* function(const char* symbol) const;
  void* library_;
};

}  // namespace ctxbroker
