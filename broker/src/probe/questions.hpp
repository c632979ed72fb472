// SPDX-License-Identifier: Apache-2.0
// The questions that probes answer, and the process that answers each of them.
#pragma once

#include <array>
#include <vector>

#include "ctxbroker/probe.hpp"
#include "observe/enum_names.hpp"

namespace ctxbroker::detail {

struct Question {
  const char* probe;  // the process that measures this
  const char* name;
  const char* title;
  ProbeUnit unit;
  const char* reference;
};

// In the order of ProbeOutcome.
inline constexpr std::array outcome_names{"measured", "not-measured", "failed", "crashed",
                                          "timed-out"};

const std::vector<Question>& questions();

// Returns one answer for each question, none of them measured yet.
std::vector<ProbeAnswer> open_answers();

}  // namespace ctxbroker::detail
