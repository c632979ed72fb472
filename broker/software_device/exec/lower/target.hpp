// SPDX-License-Identifier: Apache-2.0
// What an instruction needs of the module's target.
#pragma once

#include "exec/lower/builder.hpp"

namespace ctxbroker::software::exec::lower {

// Refuses the builder's current instruction if its module is for older GPUs than have it.
void check_target(const Builder& builder);

}  // namespace ctxbroker::software::exec::lower
