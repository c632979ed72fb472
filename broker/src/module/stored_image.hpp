// SPDX-License-Identifier: Apache-2.0
// Images in the form that the driver takes, with a description. The process stores each distinct
// image once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/kernel_image.hpp"

namespace ctxbroker::detail {

struct StoredImage {
  std::uint64_t hash = 0;
  std::size_t size = 0;
  // Aligned for every reader. A 0 follows the image, so that reading text which lacks its 0 stops.
  std::vector<std::byte> bytes = {};
  // Nothing for a format that the reader does not know but the driver may.
  std::optional<KernelImage> about = {};

  std::string_view text() const noexcept;  // of PTX; else empty
  // Returns whether the image is known to have this kernel for a device of this capability.
  bool has_kernel(std::string_view name, int compute_capability) const noexcept;
  // Returns whether the driver may have to compile it for a device of this capability, which can
  // take many seconds.
  bool may_need_compiler(int compute_capability) const noexcept;
  // Returns whether a loaded copy has variables that kernels can write, or whether that is unknown.
  // An image without them can be shared by several users, unloaded and loaded again.
  bool has_memory() const noexcept;
};

// Returns the image with these bytes, which is stored as long as somebody uses it. Throws Error
// (kernel_image, with `who` in the text) for an image that is cut off or corrupt, because the
// driver would trust a wrong size and read past the end. The driver refuses bytes that are no
// image.
std::shared_ptr<const StoredImage> store_image(std::span<const std::byte> bytes,
                                               const std::string& who);

}  // namespace ctxbroker::detail
