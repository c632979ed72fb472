// Reads what an image holds without loading it.
#pragma once

#include "ctxbroker/kernel_image.hpp"
#include "image/bytes.hpp"

namespace ctxbroker::image {

// Throws ImageError when the image is truncated, corrupt or of an unknown format.
KernelImage describe(Bytes image);

}  // namespace ctxbroker::image
