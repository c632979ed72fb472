// SPDX-License-Identifier: Apache-2.0
/// @file
/// Internal to the SDK: the host's GPU extension for one instance, and the list of what the
/// instance has allocated.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ctxbroker/plugin.h"
#include "ctxbroker/sdk/failure.hpp"
#include "ctxbroker/sdk/host.hpp"
#include "ctxbroker/sdk/local.hpp"

namespace ctxbroker::sdk {
namespace detail {

class Gpu;

// A piece of device memory, which is one node of its Gpu's list. Deactivate gives it back even when
// the author forgets, and a loss of the context empties it. It stays where it is when a buffer
// moves, so the list never points into an author's variables.
struct Piece {
  Piece() = default;
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  ~Piece() { give_back(); }

  // Asks the host for the memory, and joins the list.
  inline void allocate(Gpu& owner, std::uint64_t bytes);
  // Leaves the list, and returns the memory. It is allowed in activate and deactivate.
  inline void give_back() noexcept;
  // Becomes empty without a call of the host, because the memory is gone.
  inline void forget() noexcept;

  Gpu* gpu = nullptr;
  std::uint64_t address = 0;
  Piece* previous = nullptr;
  Piece* next = nullptr;
};

CTXB_SDK_LOCAL inline constexpr std::uint64_t no_address = 0;

// Owns one piece, or none.
class Allocation {
 public:
  Allocation() = default;
  Allocation(Gpu& gpu, std::uint64_t bytes) : piece_(std::make_unique<Piece>()) {
    piece_->allocate(gpu, bytes);
  }

  void reset() noexcept { piece_.reset(); }

  const std::uint64_t& address() const noexcept {
    if (piece_ == nullptr) return no_address;
    return piece_->address;
  }

 private:
  std::unique_ptr<Piece> piece_;
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
  const ctxb_launch_extension& required_launches() const {
    if (launches_ == nullptr) {
      return host_.require<ctxb_launch_extension>(CTXB_EXT_LAUNCH);
    }
    return *launches_;
  }
  const ctxb_host* host() const noexcept { return host_.raw(); }

  void release_all() noexcept {
    while (first_ != nullptr) {
      first_->give_back();
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
  Piece* first_ = nullptr;  // newest first, so that release_all goes backwards

  friend struct Piece;
};

inline void Piece::allocate(Gpu& owner, std::uint64_t bytes) {
  const ctxb_status status = owner.calls().allocate(owner.host(), bytes, &address);
  if (status < 0) {
    address = 0;
    check_success(status, "allocating " + std::to_string(bytes) + " bytes of device memory");
  }
  gpu = &owner;
  next = owner.first_;
  if (next != nullptr) {
    next->previous = this;
  }
  owner.first_ = this;
}

inline void Piece::forget() noexcept {
  if (gpu == nullptr) {
    return;
  }
  (previous != nullptr ? previous->next : gpu->first_) = next;
  if (next != nullptr) {
    next->previous = previous;
  }
  gpu = nullptr;
  address = 0;
  previous = next = nullptr;
}

inline void Piece::give_back() noexcept {
  if (gpu == nullptr) {
    return;
  }
  const Gpu& owner = *gpu;
  const std::uint64_t memory = address;
  forget();
  // A refusal is in the host's ledger and log already; there is nothing more to do here.
  static_cast<void>(owner.calls_->release(owner.host(), memory));
}

}  // namespace detail
}  // namespace ctxbroker::sdk
