// SPDX-License-Identifier: Apache-2.0
// Texts that stay until the process ends, for readers that cannot know how long their owners live:
// signal handlers, other threads, and the driver.
#pragma once

#include <string_view>

namespace ctxbroker::detail {

// Equal texts give the same address. Takes as much memory as there are different texts. Any thread.
// Without memory, it returns a text that says so.
const char* lasting(std::string_view text) noexcept;

}  // namespace ctxbroker::detail
