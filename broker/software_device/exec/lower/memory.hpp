// SPDX-License-Identifier: Apache-2.0
// What loads, stores and atomics share.
#pragma once

#include "exec/lower/builder.hpp"
#include "exec/lower/modifiers.hpp"

namespace ctxbroker::software::exec::lower {

struct Address {
  ValueId base = no_value;
  std::int64_t offset = 0;
};

// Takes the modifier of a state space; Space::none for generic addresses.
Space take_space(Modifiers& m);
// The engines' name for it: constant and generic addresses are global ones.
std::string_view where_of(Space space);
// The space of an access: `space`, or without one that of the variable which the address names.
Space space_named(Builder& b, const Operand& address, Space space);
Address address_of(Builder& b, const Operand& operand, Space space);

}  // namespace ctxbroker::software::exec::lower
