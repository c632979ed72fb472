// From an image to a program, with the errors in the words of a driver.
#pragma once

#include <memory>
#include <string>

#include "api/cuda_api.hpp"
#include "exec/program.hpp"

namespace ctxbroker::software {

struct JitResult {
  CUresult status = CUDA_SUCCESS;
  std::shared_ptr<const exec::Program> program;  // null unless success
  std::string error_log;  // "ptxas application ptx input, line 5; error   : ..."
  std::string info_log;   // one line per kernel
};

// `image` is what cuModuleLoadData is given; its length is read from itself.
JitResult compile_image(const void* image);

}  // namespace ctxbroker::software
