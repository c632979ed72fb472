// SPDX-License-Identifier: Apache-2.0
// What the standard streams are connected to.
#pragma once

#include <string>

namespace ctxbroker::sample_host {

bool stderr_is_terminal() noexcept;
int stderr_columns() noexcept;  // 80 when it does not say

// Colour on standard error: only on a terminal, not when NO_COLOR is set to anything but an empty
// text, not when TERM is "dumb".
bool use_colour() noexcept;

// "sample_host: error: text" on standard error; further lines of `text` are indented.
void print_error(const std::string& text, bool colour);

}  // namespace ctxbroker::sample_host
