// SPDX-License-Identifier: Apache-2.0
#include "environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>

#include "exit_code.hpp"
#include "own_folder.hpp"

namespace ctxbroker::launch {
namespace {

constexpr std::size_t most_settings = 120'000;  // Linux allows 131,071 bytes for a variable

std::string value_of(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
  return value != nullptr ? value : "";
}

void set(std::vector<std::string>& variables, const std::string& name, const std::string& value) {
  const std::string start = name + "=";
  std::erase_if(variables, [&](const std::string& one) { return one.rfind(start, 0) == 0; });
  variables.push_back(start + value);
}

void check_file(const std::string& path) {
  if (::access(path.c_str(), R_OK) == 0) return;
  throw Failure(ExitCode::failed, path +
                                      ": the file is missing or cannot be read; it is part of "
                                      "ctxbroker, so install ctxbroker again");
}

// The driver that --driver or CTXBROKER_DRIVER names, as the broker will find it. Unset: neither
// names one. Throws Failure.
std::optional<DriverChoice> named_driver(const Settings& settings) {
  const std::string variable = value_of("CTXBROKER_DRIVER");
  if (settings.driver || variable.empty()) return settings.driver;
  const auto choice = parse_driver_choice(variable);
  if (choice) return choice;
  throw Failure(ExitCode::failed,
                "CTXBROKER_DRIVER is \"" + variable +
                    "\", which names no driver; set it to auto, nvidia or software, or unset it");
}

}  // namespace

OwnFiles find_own_files(const Settings& settings) {
  OwnFiles files;
  files.folder = own_folder();
  files.launcher = files.folder + "/ctxbroker_launch.so";
  files.gate = files.folder + "/ctxbroker_gate.so";
  for (const std::string& file : {files.launcher, files.gate, files.folder + "/ctxbroker_run.so",
                                  files.folder + "/gate/libcuda.so.1"}) {
    check_file(file);
  }
  if (named_driver(settings) == DriverChoice::software) {
    check_file(files.folder + "/libctxbroker_software_device.so");
  }
  if (files.folder.find_first_of(":;$") != std::string::npos) {
    throw Failure(ExitCode::failed, files.folder +
                                        ": the system's loader cannot be given this path, because "
                                        "of a ':', ';' or '$' in it; install ctxbroker elsewhere");
  }
  return files;
}

std::string put_in_front(const std::vector<std::string>& entries, const std::string& list,
                         const char* separators) {
  std::string made;
  const auto add = [&](const std::string& entry) {
    made += (made.empty() ? "" : std::string(1, *separators)) + entry;
  };
  for (const std::string& entry : entries) add(entry);
  std::string_view rest = list;
  while (!list.empty()) {
    const std::size_t end = rest.find_first_of(separators);
    const std::string entry(rest.substr(0, end));
    if (std::find(entries.begin(), entries.end(), entry) == entries.end()) add(entry);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return made;
}

std::vector<std::string> make_environment(const OwnFiles& files, const Settings& settings) {
  std::vector<std::string> variables;
  for (char** one = environ; *one != nullptr; ++one) variables.emplace_back(*one);
  std::vector<std::string> preloaded{files.launcher, files.gate};
  std::vector<std::string> folders{files.folder + "/gate"};
  if (files.folder.find_first_of(" \t") != std::string::npos) {
    // LD_PRELOAD cannot hold a path with a blank. The loader finds the names in a folder that can.
    preloaded = {"ctxbroker_launch.so", "ctxbroker_gate.so"};
    folders.push_back(files.folder);
  }
  set(variables, "LD_PRELOAD", put_in_front(preloaded, value_of("LD_PRELOAD"), ": "));
  set(variables, "LD_LIBRARY_PATH", put_in_front(folders, value_of("LD_LIBRARY_PATH"), ":;"));
  if (settings.driver) set(variables, "CTXBROKER_DRIVER", to_string(*settings.driver));
  const std::string text = to_text(settings);
  if (text.size() > most_settings) {
    throw Failure(ExitCode::failed,
                  "the policy is too large for the environment of a process, which can hold " +
                      std::to_string(most_settings) + " bytes of it; use fewer entries");
  }
  set(variables, settings_variable, text);
  return variables;
}

}  // namespace ctxbroker::launch
