// The shield: a small green context of the broker's. While a green context exists on a device, the
// driver refuses to destroy the device's primary context.
#pragma once

#include <string>

#include "context/device_link.hpp"
#include "context/multiprocessor_split.hpp"

namespace ctxbroker::detail {

// The state of a shield.
struct Shield {
  bool up = false;
  std::string reason;  // why it is not up
};

// The owner serialises the calls.
class ShieldContext {
 public:
  explicit ShieldContext(const DeviceLink& device) noexcept : device_(device) {}

  // Creates the shield on the retained primary context and logs a failure. A shield of an earlier
  // generation has ended with that generation.
  void raise(MultiprocessorSplit& split) noexcept;
  void take_down() noexcept;
  bool is_up() const noexcept { return green_ != nullptr; }
  const std::string& reason() const noexcept { return reason_; }  // why it is not up

 private:
  DeviceLink device_;
  CUgreenCtx green_ = nullptr;
  std::string reason_;
};

}  // namespace ctxbroker::detail
