// SPDX-License-Identifier: Apache-2.0
// What the host's code and the kernel agree on.
#pragma once

namespace sample {

enum class Operation : int { over, add, multiply };

}  // namespace sample
