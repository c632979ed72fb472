// SPDX-License-Identifier: Apache-2.0
// PTX text to ptx::Module. Accepts what nvcc writes and what the PTX ISA's grammar allows around
// it.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "ptx/budget.hpp"
#include "ptx/module.hpp"

namespace ctxbroker::software::ptx {

// A mistake in the text, or an instruction that the software device does not execute. The line is
// that of the PTX text, from 1; what() is one sentence without it.
class SyntaxError : public std::runtime_error {
 public:
  SyntaxError(std::uint32_t line, const std::string& message)
      : std::runtime_error(message), line_(line) {}
  std::uint32_t line() const noexcept { return line_; }

 private:
  std::uint32_t line_;
};

// Throws SyntaxError. Never reads past `text`, whatever is in it. What the module takes is charged
// to the budget: by default its own, and one for all that are linked with each other.
Module parse(std::string_view text);
Module parse(std::string_view text, ModuleBudget& budget);

}  // namespace ctxbroker::software::ptx
