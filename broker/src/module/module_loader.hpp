// Loading images into a lease.
#pragma once

#include <memory>
#include <string>

#include "context/resources.hpp"
#include "module/module_image.hpp"

namespace ctxbroker::detail {

struct LoadedModule {
  std::string name;
  Module module;
};

// Throws Error; kernel_image texts end with the JIT log. A kernel that the descriptor promises and
// the image lacks is an error too.
LoadedModule load_module(const std::shared_ptr<Lease>& lease, const ModuleImage& image);

}  // namespace ctxbroker::detail
