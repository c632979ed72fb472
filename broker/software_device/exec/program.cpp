// SPDX-License-Identifier: Apache-2.0
#include "exec/program.hpp"

namespace ctxbroker::software::exec {

const Kernel* Program::find_kernel(std::string_view name) const noexcept {
  for (const Kernel& kernel : kernels) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

}  // namespace ctxbroker::software::exec
