// SPDX-License-Identifier: Apache-2.0
// Variables, parameters and registers. Internal to ptx/.
#pragma once

#include <string_view>
#include <vector>

#include "ptx/context.hpp"
#include "ptx/module.hpp"

namespace ctxbroker::software::ptx {

// The space that ".shared" and its like name; Space::none for any other word.
Space space_of(std::string_view word) noexcept;

// After the space's word: ".align 4 .b8 a[4] = {1, 2}, b;" with its semicolon.
std::vector<Variable> parse_variables(Context& context, Space space, bool is_extern);

// "(.param .b32 a, .reg .u32 b)"; the parenthesis is the next token.
std::vector<Variable> parse_parameters(Context& context);

// "(...)", whatever is in it; `where` is for the error when none is there.
void skip_parenthesis(Context& context, std::string_view where);

}  // namespace ctxbroker::software::ptx
