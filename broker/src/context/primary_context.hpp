// The broker's retain on a device's primary context, and which generation of that context this is.
#pragma once

#include <atomic>
#include <cstdint>

#include "context/device_link.hpp"

namespace ctxbroker::detail {

// Any thread; retain is serialised by the owner.
class PrimaryContext {
 public:
  explicit PrimaryContext(const DeviceLink& device) noexcept : device_(device) {}

  // Another part of the process has made it already, or still holds it.
  bool is_active() const noexcept;

  // Begins a generation that counts only with begin_generation. Throws Error: driver_call,
  // out_of_memory, context_lost.
  void retain();
  // `shielded`: the driver refuses to destroy it, so that nobody needs to look whether it stands.
  void begin_generation(bool shielded) noexcept;
  // Gives back every retain.
  void release() noexcept;

  CUcontext context() const noexcept { return context_; }

  // Which generation this is; 0: none, or lost. Equal numbers mean the same generation.
  std::uint64_t generation() const noexcept { return generation_.load(std::memory_order_acquire); }
  // Whether that generation goes on. One load where a shield stands; else the driver is asked about
  // the device, not about a handle that may be dead. What was destroyed and made again by somebody
  // between two questions is not noticed so.
  bool is_current(std::uint64_t generation) noexcept {
    return shielded_generation_.load(std::memory_order_acquire) == generation ||
           ask_if_current(generation);
  }
  // Somebody destroyed that generation.
  void lose(std::uint64_t generation) noexcept;
  // Asks the driver: loses the generation when the primary is active no more.
  void check() noexcept;

 private:
  bool ask_if_current(std::uint64_t generation) noexcept;
  bool read_state(unsigned* flags, int* active) const noexcept;  // false: the driver does not tell
  void report_users() const noexcept;

  DeviceLink device_;
  CUcontext context_ = nullptr;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::uint64_t> shielded_generation_{0};  // the same while a shield stands, else 0
  int retains_ = 0;
};

}  // namespace ctxbroker::detail
