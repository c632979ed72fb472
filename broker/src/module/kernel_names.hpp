// SPDX-License-Identifier: Apache-2.0
// Says which kernels an image has, for an author who asked for one that it does not have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "module/stored_image.hpp"

namespace ctxbroker::detail {

// The names of the kernels that a device of this capability finds in the image, each once; those
// most like `wanted` come first. Empty when the reader does not know the image.
std::vector<std::string> kernels_like(std::string_view wanted, const StoredImage& image,
                                      int compute_capability);

// `module "a" has no kernel "b"; it has "c", "d" and 5 more; ...`
std::string no_such_kernel(std::string_view module, std::string_view wanted,
                           const StoredImage& image, int compute_capability);

}  // namespace ctxbroker::detail
