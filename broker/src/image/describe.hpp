// What an image holds, read without loading it.
#pragma once

#include "ctxbroker/kernel_image.hpp"
#include "image/bytes.hpp"

namespace ctxbroker::image {

// Throws ImageError.
KernelImage describe(Bytes image);

}  // namespace ctxbroker::image
