// SPDX-License-Identifier: Apache-2.0
// The environment as it was before plug-ins came in, for child processes and for the broker itself.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ctxbroker::detail {

// Keeps the process's environment as it was when the first of these objects was made, until the
// last one has ended: what a plug-in does to the process's own variables changes neither child
// processes nor what the broker does. Throws std::bad_alloc. Any thread.
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
// The same; nothing in a process with raised privileges, as with secure_getenv.
std::optional<std::string> kept_secure_variable(std::string_view name);

// Returns the folder that such a variable names. Empty: there is none, or it is not an absolute
// path.
std::filesystem::path folder_from_environment(std::string_view name);
// Returns $VARIABLE/ctxbroker, or ~/FALLBACK/ctxbroker; or empty.
std::filesystem::path user_folder(std::string_view variable, std::string_view fallback);

}  // namespace ctxbroker::detail
