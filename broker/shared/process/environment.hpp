// SPDX-License-Identifier: Apache-2.0
// The environment that child processes are given.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ctxbroker::detail {

// Keeps the process's environment as it was when the first of these objects was made, until the
// last one has ended: what a plug-in does to the process's own variables does not reach the child
// processes. Throws std::bad_alloc. Any thread.
class KeptEnvironment {
 public:
  KeptEnvironment();
  ~KeptEnvironment();
  KeptEnvironment(const KeptEnvironment&) = delete;
  KeptEnvironment& operator=(const KeptEnvironment&) = delete;
};

// Returns the variables ("NAME=VALUE") that are kept, or the process's own while none are. Throws
// std::bad_alloc. Any thread, as long as no thread changes the process's own.
std::vector<std::string> kept_environment();

// Returns the value of one of them, or nothing.
std::optional<std::string> kept_variable(std::string_view name);

}  // namespace ctxbroker::detail
