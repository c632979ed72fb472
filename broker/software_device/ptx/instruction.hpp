// SPDX-License-Identifier: Apache-2.0
// One instruction with its guard and operands. Internal to ptx/.
#pragma once

#include "ptx/context.hpp"
#include "ptx/module.hpp"
#include "ptx/names.hpp"

namespace ctxbroker::software::ptx {

// From the guard or opcode to the semicolon. A name that is not declared yet becomes an operand of
// kind label: resolve_label decides when the whole function is known.
Instruction parse_instruction(Context& context, const Names& names);

// Turns the undecided operands of an instruction in `scope` into labels or symbols. Throws
// SyntaxError for a branch to a label that is not there.
void resolve_labels(Instruction& instruction, const Names& names, std::size_t scope);

}  // namespace ctxbroker::software::ptx
