// SPDX-License-Identifier: Apache-2.0
#include "process/environment.hpp"

#include <sys/auxv.h>
#include <unistd.h>

#include <mutex>
#include <utility>

extern char** environ;

namespace ctxbroker::detail {
namespace {

// One for the process, because the environment belongs to the process.
struct Kept {
  std::mutex mutex;
  int holders = 0;
  std::vector<std::string> variables;  // while there are holders
};
Kept& kept() {
  static auto* const one = new Kept;  // never ended: brokers may end after static objects
  return *one;
}

std::vector<std::string> own_variables() {
  std::vector<std::string> all;
  // clearenv leaves a null pointer.
  for (char** one = environ; one != nullptr && *one != nullptr; ++one) all.emplace_back(*one);
  return all;
}

}  // namespace

KeptEnvironment::KeptEnvironment() {
  Kept& process = kept();
  const std::lock_guard lock(process.mutex);
  if (process.holders == 0) process.variables = own_variables();
  ++process.holders;
}

KeptEnvironment::~KeptEnvironment() {
  Kept& process = kept();
  const std::lock_guard lock(process.mutex);
  --process.holders;
}

std::vector<std::string> kept_environment() {
  Kept& process = kept();
  const std::lock_guard lock(process.mutex);
  return process.holders != 0 ? process.variables : own_variables();
}

std::optional<std::string> kept_variable(std::string_view name) {
  for (std::string& one : kept_environment()) {
    const bool is_it = one.size() > name.size() && one[name.size()] == '=' &&
                       one.compare(0, name.size(), name) == 0;
    if (is_it) return one.substr(name.size() + 1);
  }
  return std::nullopt;
}

std::optional<std::string> kept_secure_variable(std::string_view name) {
  return ::getauxval(AT_SECURE) == 0 ? kept_variable(name) : std::nullopt;
}

std::filesystem::path folder_from_environment(std::string_view name) {
  const std::optional<std::string> text = kept_secure_variable(name);
  // The base directory specification: a path that is not absolute is to be ignored.
  return text && text->starts_with('/') ? std::filesystem::path(*text) : std::filesystem::path();
}

std::filesystem::path user_folder(std::string_view variable, std::string_view fallback) {
  const std::filesystem::path folder = folder_from_environment(variable);
  if (!folder.empty()) return folder / "ctxbroker";
  const std::filesystem::path home = folder_from_environment("HOME");
  return home.empty() ? home : home / fallback / "ctxbroker";
}

}  // namespace ctxbroker::detail
