// From what cuModuleLoadData is given (PTX, fatbin, cubin) to PTX text.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

namespace ctxbroker::image {

enum class Reason {
  invalid,    // neither PTX nor fatbin nor ELF, truncated or corrupt
  no_ptx,     // an image of machine code only: nothing a CPU could run
  newer_ptx,  // all PTX is for a higher compute capability than the device's
};

class ImageError : public std::runtime_error {
 public:
  ImageError(Reason reason, const std::string& message)
      : std::runtime_error(message), reason_(reason) {}
  Reason reason() const noexcept { return reason_; }

 private:
  Reason reason_;
};

// How many bytes an image without a stated length has, read from its own header; PTX text is
// measured to its ending 0. This is what cuModuleLoadData must trust.
std::size_t image_size(const void* image);

// The PTX of the image: the highest .target not above `compute` (10 * major + minor), unpacked
// (plain, zstd, lz4). Throws ImageError.
std::string extract_ptx(std::span<const std::byte> image, int compute);

}  // namespace ctxbroker::image
