// A module's image as the plug-in's descriptor names it, and the checks that keep a lying size from
// making the driver read past its end.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace ctxbroker::detail {

// Borrowed: static data of the plug-in's library.
struct ModuleImage {
  std::string name;
  const std::byte* data = nullptr;
  std::size_t size = 0;
  std::vector<std::string> kernels;  // those that the descriptor promises; may be empty
};

// A copy of the image, aligned for every reader, with a 0 behind its end: text that lacks its 0
// stays inside. Throws Error (kernel_image) when a fatbin or an ELF file is longer than `size`
// says.
std::vector<std::byte> checked_copy(const ModuleImage& image);

}  // namespace ctxbroker::detail
