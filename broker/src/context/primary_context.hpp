// SPDX-License-Identifier: Apache-2.0
// The broker's reference to a device's primary context, the generation of that context, and the
// shield: a small green context of the broker's. While a green context exists on a device, the
// driver refuses to destroy the device's primary context.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "context/device_access.hpp"
#include "context/multiprocessor_split.hpp"

namespace ctxbroker::detail {

// Any thread may use it. The owner serialises `retain`.
class PrimaryContext {
 public:
  explicit PrimaryContext(const DeviceAccess& device) noexcept : device_(device) {}

  // Returns whether some part of the process holds the context.
  bool is_active() const noexcept;

  // Logs who uses the context already. Call it before the first retain.
  void report_users() const noexcept;
  // Takes over a retain of the context, or the status with which that failed; begin_generation then
  // makes it usable. Throws Error: driver_call, out_of_memory, context_lost.
  void take(CUcontext context, CUresult status);
  // `shielded` says that the driver refuses to destroy the context, so that nobody needs to check
  // whether it still exists. Returns the generation.
  std::uint64_t begin_generation(bool shielded) noexcept;
  // A shield has been raised for that generation, which began without one.
  void note_shield(std::uint64_t generation) noexcept {
    shielded_generation_.store(generation, std::memory_order_release);
  }
  // Gives back every retain.
  void release() noexcept;

  CUcontext context() const noexcept { return context_; }

  // Returns the generation, or 0 when there is none or it is lost.
  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }
  // Returns whether that generation still exists. Costs one load under a shield. Otherwise it asks
  // the driver about the device, never about a handle that may be dead; it does not notice when
  // somebody destroys and makes the context again between two questions.
  bool is_current(std::uint64_t generation) noexcept {
    return is_shielded(generation) || ask_if_current(generation);
  }
  bool is_shielded(std::uint64_t generation) const noexcept {
    return shielded_generation_.load(std::memory_order_acquire) == generation;
  }
  // Records that somebody destroyed that generation.
  void lose(std::uint64_t generation) noexcept;
  // Asks the driver, and calls `lose` when the primary context is not active any more.
  void check() noexcept;

 private:
  bool ask_if_current(std::uint64_t generation) noexcept;
  bool read_state(unsigned* flags, int* active) const noexcept;  // false: the driver does not tell

  DeviceAccess device_;
  CUcontext context_ = nullptr;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::uint64_t> shielded_generation_{0};  // the same while a shield stands, else 0
  int retains_ = 0;
};

// The state of a shield.
struct Shield {
  bool up = false;
  std::string reason;  // why it is not up
};

// The owner serialises the calls.
class ShieldContext {
 public:
  explicit ShieldContext(const DeviceAccess& device) noexcept : device_(device) {}

  // Describes the shield's green context: the smallest partition suffices, because nothing runs in
  // it. Throws std::bad_alloc.
  static CUresult describe(MultiprocessorSplit& split, CUdevResourceDesc* description);
  // Takes over the shield that was created on the retained primary context, or the status with
  // which that failed, and logs a failure. `offered` says whether the driver has green contexts. A
  // shield of an earlier generation has ended with that generation.
  void take(CUgreenCtx green, CUresult status, bool offered) noexcept;
  void take_down() noexcept;
  bool is_up() const noexcept { return green_ != nullptr; }
  const std::string& reason() const noexcept { return reason_; }  // why it is not up

 private:
  DeviceAccess device_;
  CUgreenCtx green_ = nullptr;
  std::string reason_;
};

}  // namespace ctxbroker::detail
