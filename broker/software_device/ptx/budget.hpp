// SPDX-License-Identifier: Apache-2.0
// The allowance that one module has left, from its text to its program. A linked module has one
// budget for all that it is linked from.
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

// The memory of all modules and programs that live in the process. Thread-safe.
limits::SharedAllowance& process_memory() noexcept;

// The memory of one module. It counts for the process too, while the budget lives.
class MemoryBudget : public Budget {
 public:
  MemoryBudget() : Budget(limits::module_memory) {}
  // Throws SyntaxError, which names the limit of the module or that of the process.
  void spend(std::uint64_t bytes, std::uint32_t line) {
    Budget::spend(bytes, line);
    constexpr std::uint64_t piece = limits::mib;  // other threads take from the process as well
    if (taken() > share_.taken())
      grow((taken() - share_.taken() + piece - 1) / piece * piece, line);
  }

 private:
  void grow(std::uint64_t bytes, std::uint32_t line);
  limits::Share share_{process_memory()};
};

struct ModuleBudget {
  Budget text{limits::ptx_text};
  Budget words{limits::ptx_words};
  MemoryBudget memory;
  Budget steps{limits::module_steps};
  Budget analysis{limits::module_analysis};
};

}  // namespace ctxbroker::software::ptx
