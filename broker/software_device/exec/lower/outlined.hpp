// SPDX-License-Identifier: Apache-2.0
// Calls of functions that are not expanded in place: those that may call themselves, and those that
// are called through pointers.
//
// Each such function is lowered once, after the kernel. Its frame lies in the lane's local memory
// and holds, from its beginning: where the call comes back to (8 bytes), the parameters, the
// results, the function's own variables, and the values that its calls must not lose.
#pragma once

#include <vector>

#include "exec/lower/builder.hpp"

namespace ctxbroker::software::exec::lower {

// call [(results),] function [, (arguments)] [, signature];
struct Call {
  const Operand* function = nullptr;
  const std::vector<Operand>* results = nullptr;
  const std::vector<Operand>* arguments = nullptr;
  const Operand* signature = nullptr;  // a call prototype, or a table of targets
};

void call_outlined(Builder& b, const ptx::Function& function, const Call& call);
void call_through_pointer(Builder& b, const Call& call);
void return_from_outlined(Builder& b);
// Lowers all functions that were called, also by each other.
void lower_outlined(Builder& b);

// Fills in which functions have addresses, and which may call themselves.
void find_calls(const ptx::Module& module, ModuleNames& names);

}  // namespace ctxbroker::software::exec::lower
