// SPDX-License-Identifier: Apache-2.0
/// @file
/// Internal to the SDK: the host's GPU extension for one instance, and the list of what the
/// instance has allocated.
#pragma once

#include <cstdint>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/failure.hpp"
#include "ctxbroker/sdk/host.hpp"

namespace ctxbroker::sdk {
namespace detail {

class Gpu;

// A piece of device memory, which is one node of its Gpu's list. Deactivate gives it back even when
// the author forgets, and a loss of the context empties it.
class Allocation {
 public:
  Allocation() = default;
  inline Allocation(Gpu& gpu, std::uint64_t bytes);
  Allocation(Allocation&& other) noexcept { take(other); }
  Allocation& operator=(Allocation&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Allocation() { reset(); }

  // Gives the memory back. It is allowed in activate and deactivate.
  inline void reset() noexcept;
  // Becomes empty without a call of the host, because the memory is gone.
  inline void forget() noexcept;

  const std::uint64_t& address() const noexcept { return address_; }

 private:
  inline void take(Allocation& other) noexcept;
  inline void link(Gpu& gpu) noexcept;

  Gpu* gpu_ = nullptr;
  std::uint64_t address_ = 0;
  Allocation* previous_ = nullptr;
  Allocation* next_ = nullptr;

  friend class Gpu;
};

class Gpu {
 public:
  explicit Gpu(Host host) noexcept : host_(host) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() { forget_all(); }

  // Looks the extensions up. Throws Failure (unsupported) when the plug-in needs the first one and
  // the host does not have it.
  void open(bool is_needed = true) {
    opened_ = true;
    calls_ = host_.find<ctxb_gpu_extension>(CTXB_EXT_GPU);
    launches_ = host_.find<ctxb_launch_extension>(CTXB_EXT_LAUNCH);
    if (is_needed) {
      calls();
    }
  }

  // Throws Failure: wrong state before open(), unsupported when the host has no such extension.
  const ctxb_gpu_extension& calls() const {
    if (!opened_) {
      throw Failure(CTXB_ERROR_WRONG_STATE, "the GPU was used before activate");
    }
    return calls_ != nullptr ? *calls_ : host_.require<ctxb_gpu_extension>(CTXB_EXT_GPU);
  }
  // Null when the host is older than the extension.
  const ctxb_launch_extension* launches() const noexcept { return launches_; }
  // The same, but throws Failure (unsupported) instead.
  const ctxb_launch_extension& need_launches() const {
    if (launches_ == nullptr) {
      return host_.require<ctxb_launch_extension>(CTXB_EXT_LAUNCH);
    }
    return *launches_;
  }
  const ctxb_host* host() const noexcept { return host_.raw(); }

  void release_all() noexcept {
    while (first_ != nullptr) {
      first_->reset();
    }
  }
  void forget_all() noexcept {
    while (first_ != nullptr) {
      first_->forget();
    }
  }

 private:
  Host host_;
  bool opened_ = false;
  const ctxb_gpu_extension* calls_ = nullptr;
  const ctxb_launch_extension* launches_ = nullptr;
  Allocation* first_ = nullptr;  // newest first, so that release_all goes backwards

  friend class Allocation;
};

inline Allocation::Allocation(Gpu& gpu, std::uint64_t bytes) {
  const ctxb_status status = gpu.calls().allocate(gpu.host(), bytes, &address_);
  if (status < 0) {
    address_ = 0;
    require_success(status, "allocating " + std::to_string(bytes) + " bytes of device memory");
  }
  link(gpu);
}

inline void Allocation::link(Gpu& gpu) noexcept {
  gpu_ = &gpu;
  previous_ = nullptr;
  next_ = gpu.first_;
  if (next_ != nullptr) {
    next_->previous_ = this;
  }
  gpu.first_ = this;
}

inline void Allocation::forget() noexcept {
  if (gpu_ == nullptr) {
    return;
  }
  (previous_ != nullptr ? previous_->next_ : gpu_->first_) = next_;
  if (next_ != nullptr) {
    next_->previous_ = previous_;
  }
  gpu_ = nullptr;
  address_ = 0;
  previous_ = next_ = nullptr;
}

inline void Allocation::reset() noexcept {
  if (gpu_ == nullptr) {
    return;
  }
  const Gpu& gpu = *gpu_;
  const std::uint64_t address = address_;
  forget();
  // A refusal is in the host's ledger and log already; there is nothing more to do here.
  static_cast<void>(gpu.calls_->release(gpu.host(), address));
}

inline void Allocation::take(Allocation& other) noexcept {
  if (other.gpu_ != nullptr) {
    Gpu& gpu = *other.gpu_;
    const std::uint64_t address = other.address_;
    other.forget();
    address_ = address;
    link(gpu);
  }
}

}  // namespace detail
}  // namespace ctxbroker::sdk
