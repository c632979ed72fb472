// SPDX-License-Identifier: Apache-2.0
// The functions of the runtime library whose results in a lease differ from a bare process's, and
// why. docs/runtime_functions.md shows these reasons.
#include "runtime_functions.hpp"

namespace ctxbroker {

const std::vector<AllowedDifference>& allowed_differences() {
  static const std::vector<AllowedDifference> all = {
      {"cudaDeviceReset", in_shared | in_private | in_green | in_partition,
       "The device is not reset, because that would end the neighbours' work. The runtime library "
       "forgets its own state, and memory that was allocated before is still there."},
      {"cudaSetDeviceFlags", in_private,
       "The runtime library refuses flags while a context that is not the primary is current. "
       "`cuCtxSetFlags` of the driver takes them."},
      {"cudaInitDevice", in_private,
       "The runtime library refuses flags while a context that is not the primary is current."},
  };
  return all;
}

const AllowedDifference* allowed(const std::string& function, unsigned place) {
  for (const AllowedDifference& one : allowed_differences())
    if (function == one.function && (one.places & place) != 0) return &one;
  return nullptr;
}

std::vector<std::string> compare(const FunctionResults& alone, const FunctionResults& leased,
                                 unsigned place, const std::vector<AllowedDifference>& meant) {
  std::vector<std::string> complaints;
  const auto is_meant = [&](const std::string& name) {
    for (const AllowedDifference& one : meant)
      if (name == one.function && (one.places & place) != 0) return true;
    return false;
  };
  if (alone.names != leased.names) complaints.emplace_back("other functions have run");
  for (const auto& [name, answer] : alone.answers) {
    const auto found = leased.answers.find(name);
    if (found == leased.answers.end()) continue;
    const bool differs = found->second != answer;
    if (differs && !is_meant(name)) {
      const auto said = leased.said.find(name);
      complaints.push_back(name + "\n    alone: " + answer + "\n    lease: " + found->second +
                           (said != leased.said.end() ? said->second : ""));
    } else if (!differs && is_meant(name)) {
      complaints.push_back(name + " is as alone; take it out of allowed_differences()");
    }
  }
  return complaints;
}

}  // namespace ctxbroker
