// SPDX-License-Identifier: Apache-2.0
#include "first_report.hpp"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "ctxbroker/error.hpp"
#include "exit_code.hpp"
#include "observe/whole_file.hpp"
#include "report.hpp"

namespace ctxbroker::launch {

std::string output_path(const std::string& option, const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  const auto refuse = [&](const std::string& why) {
    throw Failure(ExitCode::failed, option + ": " + path + ": " + why);
  };
  if (error) refuse(error.message());
  if (std::filesystem::is_directory(absolute, error)) refuse("it is a folder; name a file in it");
  // A report is written several times.
  if (std::filesystem::exists(absolute, error) &&
      !std::filesystem::is_regular_file(absolute, error)) {
    refuse(
        "it is a pipe or a device, not a file; name a file, and read that when the program ends");
  }
  const auto folder = absolute.parent_path();
  if (!std::filesystem::is_directory(folder, error)) {
    refuse("there is no folder " + folder.string());
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    refuse("the folder " + folder.string() + " cannot be written to");
  }
  return absolute.lexically_normal().string();
}

void check_outputs(const Settings& settings, const std::vector<Input>& inputs) {
  std::error_code error;  // a file that is not there is no other file
  const auto is_one = [&](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && (a == b || std::filesystem::equivalent(a, b, error));
  };
  const auto refuse = [](const std::string& option, const std::string& path,
                         const std::string& other) {
    throw Failure(ExitCode::failed,
                  option + ": " + path + ": it is " + other + "; name another file");
  };
  for (const auto& [path, what] : inputs) {
    if (is_one(settings.report, path)) refuse("--report", settings.report, what);
    if (is_one(settings.trace, path)) refuse("--trace", settings.trace, what);
  }
  if (is_one(settings.trace, settings.report)) {
    refuse("--trace", settings.trace, "the file of --report too");
  }
}

void write_first_report(const Settings& settings) {
  if (settings.report.empty()) return;
  try {
    write_report(settings.report, report_before_driver(settings));
  } catch (const Error& error) {
    throw Failure(ExitCode::failed, "--report: " + error.message());
  }
}

}  // namespace ctxbroker::launch
