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

// The driver waits for work on the device before it loads `what` ("module \"blur\""), and the work
// does not end in time. Throws std::bad_alloc.
Error not_loaded(const Lease& lease, const std::string& what, const char* call);

}  // namespace ctxbroker::detail
