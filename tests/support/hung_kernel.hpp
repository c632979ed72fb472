// SPDX-License-Identifier: Apache-2.0
// Work that hangs until a test lets it go. Such a test runs in a child, because what is left of the
// work stays until the process ends.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "support/driver_by_name.hpp"
#include "support/kernels.hpp"

namespace ctxbroker {

class HungKernel {
 public:
  using LookUp = std::function<void*(const char* symbol)>;

  // Makes a context on device 0 that belongs to no tenant, and in it the words that kernels wait
  // for. They outlive all tenants, and no call on them waits for the kernels.
  explicit HungKernel(LookUp look_up = driver_look_up);
  HungKernel(const HungKernel&) = delete;
  HungKernel& operator=(const HungKernel&) = delete;

  // Loads a kernel into the current context; its first parameter is the word that it waits for.
  CUfunction load(const char* ptx = hold_ptx) const;
  // Launches `hold` in the current context.
  void launch(CUfunction hold, CUstream stream, std::uint32_t* flag) const;

  // A word that is 0 until let_go; `which` is 0 or 1.
  std::uint32_t* held(unsigned which = 0) const { return flags_ + which; }
  // A word that is never 0. A driver may load code at a kernel's first launch, and wait for what
  // runs, so the first launch gets this one.
  std::uint32_t* open() const { return flags_ + 2; }
  bool is_held() const;
  void let_go(unsigned which = 0) const;

  // Lets the kernel go after this time, so that a call that waits for it is a failure, and not a
  // test that hangs.
  void let_go_after(std::chrono::seconds time);
  void stop_watching() { watchdog_ = {}; }

  // In the context that belongs to no tenant:
  CUresult synchronize() const;
  std::size_t free_memory() const;

 private:
  template <typename... Parameters>
  CUresult call(const char* symbol, Parameters... arguments) const {
    return call_found(look_up_(symbol), symbol, arguments...);
  }
  template <typename... Parameters>
  void check_call(const char* symbol, Parameters... arguments) const {
    check_success(call(symbol, arguments...), symbol);
  }

  LookUp look_up_;
  CUcontext apart_ = nullptr;
  std::uint32_t* flags_ = nullptr;  // kernels read them at any time
  std::jthread watchdog_;
};

}  // namespace ctxbroker
