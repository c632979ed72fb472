// SPDX-License-Identifier: Apache-2.0
// Reports why an image cannot be read.
#pragma once

#include <stdexcept>
#include <string>

namespace ctxbroker::image {

enum class Reason {
  invalid,    // of unknown format, truncated or corrupt
  no_ptx,     // the image holds only machine code, which a CPU cannot run
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

}  // namespace ctxbroker::image
