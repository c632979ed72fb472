// SPDX-License-Identifier: Apache-2.0
// CUDA C++ compiled on the user's machine, by NVIDIA's run-time compiler (NVRTC), which is loaded
// when it is first wanted.
#pragma once

#include <string>
#include <vector>

#include "module/module_image.hpp"

namespace ctxbroker::detail {

// PTX for a device of this compute capability (10 * major + minor). `who` names the module in error
// texts. Throws Error (kernel_image): with the compiler's log; or, where there is no compiler, what
// was looked for.
std::string compile_cuda(const CudaSource& source, int compute_capability, int cuda_version,
                         const std::string& who);

// Where the compiler is looked for, in this order: a file's name, or its path.
std::vector<std::string> compiler_candidates(int cuda_version);

}  // namespace ctxbroker::detail
