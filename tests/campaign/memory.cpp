// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace ctxbroker::campaign {
namespace {

std::uint64_t status_bytes(const std::string& process, const std::string& field) {
  std::ifstream file("/proc/" + process + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1)) << 10;
  }
  throw std::runtime_error("/proc/" + process + "/status has no " + field);
}

}  // namespace

std::uint64_t data_bytes(pid_t process) {
  return status_bytes(std::to_string(process), "VmData");
}

std::uint64_t resident_bytes() {
  return status_bytes("self", "RssAnon");
}

std::size_t count_shared_files() {
  std::size_t count = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    if (entry.path().filename().string().find("ctxb") != std::string::npos) ++count;
  }
  return count;
}

}  // namespace ctxbroker::campaign
