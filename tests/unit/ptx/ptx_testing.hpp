// SPDX-License-Identifier: Apache-2.0
// Short ways to write down PTX and to say what it should become.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ptx/parser.hpp"

namespace ctxbroker::software::ptx {

// A module around `declarations`, which begin in line 2.
inline std::string module_text(const std::string& declarations) {
  return ".version 8.4 .target sm_75 .address_size 64\n" + declarations;
}

// A kernel "k" around `body`, which begins in line 3.
inline std::string kernel_text(const std::string& body) {
  return module_text(".visible .entry k(.param .u64 k_param_0) {\n" + body + "\n}\n");
}

inline Function kernel_of(const std::string& body) {
  return parse(kernel_text(body)).functions.at(0);
}

// The one instruction of a kernel with registers of every kind.
inline Instruction instruction_of(const std::string& text) {
  const auto function = kernel_of(
      ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .shared .b32 smem[8];"
      "\n" +
      text);
  return function.body.at(0);
}

template <typename Named>
const Named& named(const std::vector<Named>& all, std::string_view name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Named& one) { return one.name == name; });
  if (found == all.end()) throw std::out_of_range("nothing is named " + std::string(name));
  return *found;
}

// "LINE: MESSAGE" of the error that the text causes; empty when there is none.
inline std::string error_of(const std::string& text) {
  try {
    parse(text);
  } catch (const SyntaxError& error) {
    return std::to_string(error.line()) + ": " + error.what();
  }
  return "";
}

}  // namespace ctxbroker::software::ptx
