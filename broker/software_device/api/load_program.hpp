// SPDX-License-Identifier: Apache-2.0
// From what an application hands over as code to a program, for modules and libraries.
#pragma once

#include <memory>
#include <string>

#include "api/cuda_api.hpp"
#include "api/jit_options.hpp"
#include "exec/program.hpp"

namespace ctxbroker::software {

// Compiles, and tells the options' logs and the driver's log what is wrong. Throws the status.
std::shared_ptr<const exec::Program> load_program(const void* image, JitOptions& options);

// The same for the bytes of a file, of which nothing behind their end is read.
std::shared_ptr<const exec::Program> load_program(const std::string& file, JitOptions& options);

// Returns a file's bytes. Throws CUDA_ERROR_FILE_NOT_FOUND, and CUDA_ERROR_INVALID_IMAGE for a file
// that is too large or that names an address in memory.
std::string read_image_file(const char* name);

}  // namespace ctxbroker::software
