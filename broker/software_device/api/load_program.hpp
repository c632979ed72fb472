// SPDX-License-Identifier: Apache-2.0
// From what an application hands over as code to a program, for modules and libraries.
#pragma once

#include <memory>
#include <vector>

#include "api/cuda_api.hpp"
#include "api/jit_options.hpp"
#include "exec/program.hpp"

namespace ctxbroker::software {

// Compiles, and tells the options' logs and the driver's log what is wrong. Throws the status.
std::shared_ptr<const exec::Program> load_program(const void* image, JitOptions& options);

// A file's bytes and a 0 after them, as text is expected to end; CUDA_ERROR_FILE_NOT_FOUND.
std::vector<char> read_image_file(const char* name);

}  // namespace ctxbroker::software
