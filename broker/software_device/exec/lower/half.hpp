// SPDX-License-Identifier: Apache-2.0
// f16 and bf16, alone and in pairs. The engines know them as 16 bits: what is computed with them is
// widened, computed in f32 or f64, and rounded once.
#pragma once

#include <string_view>
#include <vector>

#include "exec/lower/builder.hpp"
#include "exec/lower/modifiers.hpp"

namespace ctxbroker::software::exec::lower {

// 16 bits each, the lower first: two of a pair, one of any other type.
std::vector<ValueId> halves_of(Builder& b, ValueId value, Type type);
// A register of the type becomes these halves.
void join_halves(Builder& b, ValueId to, const std::vector<ValueId>& halves);

// A half of the type, as f32 or f64; ftz: a subnormal number of f16 as zero.
ValueId widened(Builder& b, ValueId half, Type type, Type to, bool ftz = false);
// An f64, as a half of the type.
ValueId rounded(Builder& b, ValueId wide, Type type, std::string_view rounding = "rn");

// What becomes of an f64 before it is rounded.
struct Limits {
  bool saturate = false;  // into [0, 1]; NaN is 0
  bool relu = false;      // no less than 0; NaN stays
};
ValueId limited(Builder& b, ValueId wide, Limits limits);

void lower_half_arithmetic(Builder& b, Modifiers& m, Type type);

}  // namespace ctxbroker::software::exec::lower
