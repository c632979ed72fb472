// SPDX-License-Identifier: Apache-2.0
#include "child.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "support/temp_folder.hpp"

namespace ctxbroker::sample_host::test {
namespace {

Environment with_defaults(Environment environment) {
  const auto has = [&](const std::string& name) {
    return std::any_of(environment.begin(), environment.end(),
                       [&](const auto& variable) { return variable.first == name; });
  };
  if (std::getenv("CTXBROKER_DRIVER") == nullptr && !has("CTXBROKER_DRIVER")) {
    environment.emplace_back("CTXBROKER_DRIVER", "software");
  }
  // What scans find is kept neither for this machine's user nor for the next test.
  static const TempFolder own;
  for (const char* variable : {"XDG_CACHE_HOME", "XDG_CONFIG_HOME"}) {
    if (!has(variable)) environment.emplace_back(variable, (own / "").string());
  }
  return environment;
}

bool has_file_ending(const std::filesystem::path& folder, const std::string& ending) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().string().ends_with(ending)) return true;
  }
  return false;
}

}  // namespace

std::filesystem::path program_folder() {
  return std::filesystem::path(this_program()).parent_path();
}

Ended run_sample_host(const Start& start) {
  ChildStart program{{}, with_defaults(start.environment), ChildErrors::apart};
  std::vector<std::string>& words = program.command;
  if (!start.wrapper.empty()) words = {"/bin/sh", "-c", start.wrapper + "; exec \"$0\" \"$@\""};
  words.push_back((program_folder() / "sample_host").string());
  words.insert(words.end(), start.arguments.begin(), start.arguments.end());
  ChildProcess child(program);
  bool interrupted = start.interrupt_when.empty();
  return child.wait(std::chrono::seconds(100), [&] {
    if (interrupted || !has_file_ending(start.interrupt_folder, start.interrupt_when)) return;
    ::kill(child.id(), SIGINT);
    interrupted = true;
  });
}

}  // namespace ctxbroker::sample_host::test
