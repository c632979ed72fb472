// SPDX-License-Identifier: Apache-2.0
// Kernels and functions. Internal to ptx/.
#pragma once

#include "ptx/context.hpp"

namespace ctxbroker::software::ptx {

// After ".entry" or ".func": results, name, parameters, directives and the body or semicolon; adds
// the function to the module.
void parse_function(Context& context, bool is_entry, Linkage linkage);

// Adds to the module, for a definition in place of an earlier declaration of the name. Throws
// SyntaxError for a second definition.
void add_function(Context& context, Function function);

// ".file", ".loc", ".section", ".pragma": what says nothing about the program. Keeps where the
// source is. False when the next token is none of these.
bool read_debug_directive(Context& context);

}  // namespace ctxbroker::software::ptx
