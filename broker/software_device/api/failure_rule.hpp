// SPDX-License-Identifier: Apache-2.0
// Which call shall fail, and with what.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/cuda_api.hpp"

namespace ctxbroker::software {

struct FailureRule {
  std::string_view name;    // of an entry point, static; empty: any
  std::uint64_t after = 1;  // the how manieth call from now
  CUresult status = CUDA_SUCCESS;
};

// The name as the entry points' table holds it; null if there is none.
const char* find_entry_name(std::string_view name) noexcept;

// Reads "NAME:N=STATUS,..."; what is wrong with it, in words, otherwise.
std::variant<std::vector<FailureRule>, std::string> parse_failure_rules(std::string_view text);

}  // namespace ctxbroker::software
