// Sees which libraries a tenant's code opens later, so that they are known for its own.
#pragma once

#include "gate/gated_tenant.hpp"
#include "gate/library/gate.h"

namespace ctxbroker::detail {

// From now on the function below works; without it it does nothing. Once.
void start_open_watch(const ctxb_gate& gate) noexcept;

// What the tenant's libraries open from now on, all of them that are known to be its own, is seen.
// Any thread.
void watch_opens(GatedTenant& tenant) noexcept;

}  // namespace ctxbroker::detail
