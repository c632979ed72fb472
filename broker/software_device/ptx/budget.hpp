// SPDX-License-Identifier: Apache-2.0
// The allowance that one module has left, from its text to its code. A linked module has one budget
// for all that it is linked from.
#pragma once

#include <cstdint>

#include "limits/limits.hpp"

namespace ctxbroker::software::ptx {

class Budget : public limits::Allowance {
 public:
  using Allowance::Allowance;
  // Throws SyntaxError, which names the limit, if less than `count` is left.
  void spend(std::uint64_t count, std::uint32_t line) {
    if (!take(count)) refuse(line);
  }

 private:
  [[noreturn]] void refuse(std::uint32_t line) const;
};

struct ModuleBudget {
  Budget memory{limits::module_memory};
  Budget steps{limits::module_steps};
  Budget analysis{limits::module_analysis};
};

}  // namespace ctxbroker::software::ptx
