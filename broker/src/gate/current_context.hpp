// The context that a policy's caller has current.
#pragma once

#include "gate/caller.hpp"

namespace ctxbroker::detail {

// Null: none.
CUcontext current_context() noexcept;

// Whether it is the calling tenant's alone: of a private lease, or one that it made. True where
// none is, which the driver itself complains of.
bool alone_in_context(const Caller& caller) noexcept;

}  // namespace ctxbroker::detail
