// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ctxbroker {

// Returns the program's exit code.
__attribute__((visibility("default"))) int run_linked_host(bool use_gate);

}  // namespace ctxbroker
