// SPDX-License-Identifier: Apache-2.0
// What all functions that a plug-in can call have in common: they find the instance, check its
// phase and enter the lease, or refuse the call.
#pragma once

#include <new>
#include <string>
#include <utility>

#include "ctxbroker/error.hpp"
#include "plugin/host_side.hpp"
#include "plugin/instance.hpp"
#include "plugin/status_text.hpp"

namespace ctxbroker::detail {

// A set of phases in which a function may be called.
constexpr unsigned int in(Phase phase) noexcept {
  return 1u << static_cast<unsigned int>(phase);
}

// Records why a call was refused, for the Error that the host gets. Returns `status`.
inline ctxb_status refuse(Instance& instance, ctxb_status status, const std::string& text,
                          int driver_status = 0) {
  instance.failures().host_refused({status, driver_status, text});
  return status;
}

// Refuses a call that breaks the plug-in contract, and counts it as a strike.
inline ctxb_status refuse_breach(Instance& instance, ctxb_status status, const char* function,
                                 const std::string& text) {
  instance.strike(function, text.c_str());
  return refuse(instance, status, std::string(function) + ": " + text);
}

// Returns the plug-in status for a driver status. Records an error, and a loss of the context.
inline ctxb_status answer(Instance& instance, const char* function, CUresult status) {
  if (status == CUDA_SUCCESS) return CTXB_OK;
  instance.lease()->report_status(status);
  return refuse(instance, status_for_driver(status),
                std::string(function) + ": " + status_text(instance.lease()->table(), status),
                status);
}

// Runs work() -> ctxb_status, which may load a module. An Error that it throws becomes a refusal.
template <typename Work>
ctxb_status with_modules(Instance& instance, const char* function, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const Error& error) {
    return refuse(instance, status_for(error.kind()),
                  std::string(function) + ": " + error.message(), error.origin().status);
  }
}

// Runs work() -> ctxb_status, and turns every exception into a status.
template <typename Work>
ctxb_status contained(Work&& work) noexcept {
  try {
    return std::forward<Work>(work)();
  } catch (const std::bad_alloc&) {
    return CTXB_ERROR_OUT_OF_HOST_MEMORY;
  } catch (...) {
    return CTXB_ERROR;
  }
}

// Runs work(instance, activation) -> ctxb_status inside the instance's lease. `phases` is a union
// of in(...). Takes no lock and allocates nothing unless something is refused.
template <typename Work>
ctxb_status host_call(const ctxb_host* host, const char* function, unsigned int phases,
                      Work&& work) noexcept {
  const InstanceUse used(host, function, InstanceUse::Of::activation);
  Instance* const instance = used.instance();
  if (instance == nullptr)
    return host == nullptr ? CTXB_ERROR_INVALID_ARGUMENT : CTXB_ERROR_WRONG_STATE;
  const HostFrame frame;
  return contained([&]() -> ctxb_status {
    const Phase phase = instance->phase();
    if ((in(phase)&phases) == 0 && phase != Phase::lost) {
      return refuse_breach(*instance, CTXB_ERROR_WRONG_STATE, function,
                           std::string("not allowed while the instance is ") + to_string(phase));
    }
    Activation* activation = instance->mutable_activation();
    if (activation == nullptr || activation->lease->lost()) {
      return refuse(*instance, CTXB_ERROR_CONTEXT_LOST,
                    std::string(function) + ": the lease's context is gone");
    }
    const ContextGuard guard(activation->lease->target());
    if (guard.status() != CUDA_SUCCESS) return answer(*instance, function, guard.status());
    return std::forward<Work>(work)(*instance, *activation);
  });
}

}  // namespace ctxbroker::detail
