// While a green context exists on a device the driver refuses to destroy its primary context: the
// broker keeps one for that.
#pragma once

#include <string>

#include "context/device_link.hpp"
#include "context/multiprocessor_split.hpp"

namespace ctxbroker::detail {

// What is known of a shield.
struct Shield {
  bool up = false;
  std::string reason;  // why not, when it is not
};

// Serialised by the owner.
class ShieldContext {
 public:
  explicit ShieldContext(const DeviceLink& device) noexcept : device_(device) {}

  // On the retained primary; what stood on an earlier generation of it went with it. Says why when
  // it cannot be had.
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
