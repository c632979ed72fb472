// SPDX-License-Identifier: Apache-2.0
#include "exec/lower/target.hpp"

#include <algorithm>

namespace ctxbroker::software::exec::lower {
namespace {

// Instructions of this name with this modifier, and without that one. "bf16" is also "bf16x2".
struct Need {
  std::string_view opcode, modifier, without;
  unsigned target;  // 80: sm_80
};
// As ptxas 13.0 has it, for sm_75 and newer targets.
constexpr Need needs[] = {
    {"redux", "sync", "", 80},  {"add", "bf16", "", 90},  {"sub", "bf16", "", 90},
    {"mul", "bf16", "", 90},    {"fma", "bf16", "", 80},  {"fma", "relu", "", 80},
    {"neg", "bf16", "", 80},    {"abs", "bf16", "", 80},  {"min", "f16", "", 80},
    {"min", "bf16", "", 80},    {"min", "NaN", "", 80},   {"min", "xorsign", "", 86},
    {"max", "f16", "", 80},     {"max", "bf16", "", 80},  {"max", "NaN", "", 80},
    {"max", "xorsign", "", 86}, {"ex2", "bf16", "", 90},  {"tanh", "bf16", "", 90},
    {"setp", "bf16", "", 90},   {"set", "bf16", "", 90},  {"cvt", "bf16", "", 80},
    {"cvt", "bf16", "f32", 90}, {"cvt", "f16x2", "", 80}, {"cvt", "relu", "", 80},
    {"cvt", "tf32", "", 80},    {"atom", "bf16", "", 90}, {"red", "bf16", "", 90},
};

bool has(const Instruction& instruction, std::string_view wanted) {
  return std::any_of(
      instruction.modifiers.begin(), instruction.modifiers.end(), [&](std::string_view modifier) {
        const bool is_pair = modifier.ends_with("x2") && wanted.ends_with("f16");
        return (is_pair ? modifier.substr(0, modifier.size() - 2) : modifier) == wanted;
      });
}

}  // namespace

void check_target(const Builder& builder) {
  const Instruction& instruction = builder.instruction();
  unsigned least = 0;
  for (const Need& need : needs) {
    const bool is_meant = need.opcode == instruction.opcode && has(instruction, need.modifier) &&
                          (need.without.empty() || !has(instruction, need.without));
    if (is_meant) least = std::max(least, need.target);
  }
  if (builder.names().target >= least) return;
  builder.fail(instruction.full_name() + " needs .target sm_" + std::to_string(least) +
               " or newer, and the module's is sm_" + std::to_string(builder.names().target));
}

}  // namespace ctxbroker::software::exec::lower
