// Why an image cannot be loaded, in words that say what is in it, what the device is, and what to
// do.
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

// The newest PTX version that a driver of this CUDA version (13000) compiles: "9.0"; empty when
// this is not known.
std::string newest_ptx(int cuda_version);

}  // namespace ctxbroker::detail
