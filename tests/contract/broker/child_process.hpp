// SPDX-License-Identifier: Apache-2.0
// Tests that end CUDA in their process, or need another environment, run in a child: this program
// again, with one disabled test chosen.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ctxbroker {

struct ChildResult {
  int exit_code = -1;  // -1: it was ended by a signal
  std::string output;  // standard output and error
};

using Environment = std::vector<std::pair<std::string, std::string>>;

// `test` is "Suite.DISABLED_Name"; `environment` is added to this process's.
ChildResult run_child(const std::string& test, const Environment& environment = {});

}  // namespace ctxbroker
