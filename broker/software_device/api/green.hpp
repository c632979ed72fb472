// SPDX-License-Identifier: Apache-2.0
// Green contexts: parts of a primary context with multiprocessors of their own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>

#include "api/cuda_api.hpp"
#include "api/multiprocessors.hpp"

namespace ctxbroker::software {

struct Context;

// The green context of a handle; CUDA_ERROR_INVALID_CONTEXT for what never was one (null too),
// CUDA_ERROR_CONTEXT_IS_DESTROYED for a dead one.
Context& living_green(CUgreenCtx handle);

// What cuDevResourceGenerateDesc made. The interface has no call that ends a descriptor: equal ones
// share a handle, so that their number stays small. Thread-safe.
class DescriptorTable {
 public:
  CUdevResourceDesc add(const MultiprocessorResource& resource);
  std::optional<MultiprocessorResource> find(CUdevResourceDesc handle) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, MultiprocessorResource> resources_;  // by serial
};

}  // namespace ctxbroker::software
