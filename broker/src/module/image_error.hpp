// SPDX-License-Identifier: Apache-2.0
// Explains why an image cannot be loaded: what is in it, which device it was loaded for, and what
// to do about it.
#pragma once

#include <string>

#include "context/lease.hpp"
#include "ctxbroker/error.hpp"
#include "module/jit_call.hpp"
#include "module/stored_image.hpp"

namespace ctxbroker::detail {

struct ImageFailure {
  CUresult status = CUDA_SUCCESS;
  const char* call = "";  // "cuModuleLoadDataEx"
  std::string who = {};   // "module \"blur\"", "part \"a.cu\" of module \"blur\""
  std::string error_log = {};
  std::string info_log = {};
};

// The text ends with the JIT log. `image` may be null.
Error image_error(const Lease& lease, const StoredImage* image, const ImageFailure& failure);

}  // namespace ctxbroker::detail
