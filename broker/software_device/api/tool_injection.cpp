// SPDX-License-Identifier: Apache-2.0
#include "api/tool_injection.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

namespace ctxbroker::software {
namespace {

using Initialise = int (*)();

}  // namespace

void inject_tool() noexcept {
  // The tool may initialise the driver in its turn.
  static std::atomic<bool> done{false};
  if (done.exchange(true)) return;
  const char* file = std::getenv("CUDA_INJECTION64_PATH");  // NOLINT(concurrency-mt-unsafe)
  void* const tool = file != nullptr ? dlopen(file, RTLD_NOW) : nullptr;
  if (tool == nullptr) return;  // NVIDIA's driver says nothing either
  if (auto* initialise = reinterpret_cast<Initialise>(dlsym(tool, "InitializeInjection"))) {
    initialise();
  }
}

}  // namespace ctxbroker::software
