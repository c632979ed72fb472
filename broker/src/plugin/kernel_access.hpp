// Kernels of modules that may have to be loaded first.
#pragma once

#include <utility>

#include "ctxbroker/error.hpp"
#include "plugin/host_call.hpp"

namespace ctxbroker::detail {

ctxb_status status_for(ErrorKind kind) noexcept;

// Work that may load a module and throw: an Error becomes a refusal.
template <typename Work>
ctxb_status with_modules(Instance& instance, const char* function, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const Error& error) {
    return refuse(instance, status_for(error.kind()),
                  std::string(function) + ": " + error.message(), error.origin().status);
  }
}

// Loads the kernel's module and finds its function.
[[gnu::cold, gnu::noinline]] ctxb_status bring_kernel(Instance& instance, Activation& activation,
                                                      Kernel& kernel, const char* function);

// A kernel has no function before its module is first used, and when it was unloaded for want of
// memory. Afterwards it has, or the status says why not.
inline ctxb_status ready_kernel(Instance& instance, Activation& activation, Kernel& kernel,
                                const char* function) {
  if (kernel.function != nullptr) return CTXB_OK;
  return bring_kernel(instance, activation, kernel, function);
}

}  // namespace ctxbroker::detail
