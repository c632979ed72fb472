// SPDX-License-Identifier: Apache-2.0
// A semaphore of Vulkan, for tests of what another API lends to CUDA. Needs no headers of Vulkan,
// and no display.
#pragma once

#include <memory>

namespace ctxbroker {

class VulkanSemaphore {
 public:
  // Null, and `why_not` says why: this machine has no Vulkan for an NVIDIA device.
  static std::unique_ptr<VulkanSemaphore> make(const char** why_not);
  virtual ~VulkanSemaphore() = default;
  VulkanSemaphore(const VulkanSemaphore&) = delete;
  VulkanSemaphore& operator=(const VulkanSemaphore&) = delete;

  // Returns a new descriptor of it, which the caller owns; -1: there is none.
  virtual int descriptor() = 0;

 protected:
  VulkanSemaphore() = default;
};

}  // namespace ctxbroker
