// SPDX-License-Identifier: Apache-2.0
// The families of instructions. Each lowers one instruction, the builder's current one, and throws
// ptx::SyntaxError for what it does not know.
#pragma once

#include <string_view>

#include "exec/lower/builder.hpp"

namespace ctxbroker::software::exec::lower {

using Lowering = void (*)(Builder& builder);

struct Family {
  std::string_view opcode;
  Lowering lower;
};

// Each ends with an empty opcode.
extern const Family arithmetic_family[];
extern const Family float_family[];
extern const Family bit_family[];
extern const Family compare_family[];
extern const Family convert_family[];
extern const Family move_family[];
extern const Family memory_family[];
extern const Family atomic_family[];
extern const Family control_family[];
extern const Family warp_family[];
extern const Family video_family[];
extern const Family call_family[];

// Lowers the builder's current instruction.
void lower_instruction(Builder& builder);
// Lowers a function's body in the current scope: declares its names, then each instruction.
void lower_body(Builder& builder);

// Rounds the following steps as the modifier says ("rz", "rm", "rp") until it is destroyed.
// Nothing for "rn" and "".
class Rounding {
 public:
  Rounding(Builder& builder, std::string_view modifier);
  ~Rounding() noexcept(false);
  Rounding(const Rounding&) = delete;
  Rounding& operator=(const Rounding&) = delete;
  bool is_nearest() const { return !active_; }

 private:
  Builder& builder_;
  bool active_ = false;
};

}  // namespace ctxbroker::software::exec::lower
