// Images as the driver takes them, each kept once in the process, with what is in it.
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
  // Aligned for every reader, with a 0 behind the end: text that lacks its 0 stays inside.
  std::vector<std::byte> bytes = {};
  // Nothing for what the reader does not know: the driver may know more.
  std::optional<KernelImage> about = {};

  std::string_view text() const noexcept;  // of PTX; else empty
  // Whether a kernel of this name is known to be in it, for a device of this capability.
  bool has_kernel(std::string_view name, int compute_capability) const noexcept;
  // Whether a copy of it remembers anything: it has variables that kernels can write, or nobody
  // knows. One without can be shared by several users, and be unloaded and loaded again.
  bool has_memory() const noexcept;
};

// The image with these bytes, kept as long as somebody uses it. Throws Error (kernel_image, `who`
// in the text) for one that is cut off or corrupt, so that no lying size makes the driver read past
// its end. What is no image at all is left for the driver to refuse.
std::shared_ptr<const StoredImage> store_image(std::span<const std::byte> bytes,
                                               const std::string& who);

// Of all bytes; equal bytes, equal hashes.
std::uint64_t hash_of(std::span<const std::byte> bytes) noexcept;

}  // namespace ctxbroker::detail
