// SPDX-License-Identifier: Apache-2.0
// Reads the arguments of env, which starts another program in another environment.
#pragma once

#include <string>
#include <vector>

namespace ctxbroker::launch {

// The program that env becomes.
struct EnvCommand {
  // The program and its arguments, as env is given them. Empty: env runs no program.
  std::vector<std::string> command;
  std::string folder;         // env changes to it before; empty: it stays
  bool changes_path = false;  // PATH is another one then
  std::string lost;           // why the program would have no gate: "-i clears the environment"
};

// `arguments` are those behind the name "env".
EnvCommand read_env_command(const std::vector<std::string>& arguments);

}  // namespace ctxbroker::launch
