// SPDX-License-Identifier: Apache-2.0
#include "files/start.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>

namespace ctxbroker::sample_host {

namespace {

// Global, because they are the process's.
std::filesystem::path folder;
std::optional<mode_t> first_umask;

// The function umask could only tell it by changing it, for all threads.
std::optional<mode_t> current_umask() noexcept {
  const int file = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  char text[1024] = {};  // it is the second line
  const ssize_t length = ::read(file, text, sizeof text - 1);
  ::close(file);
  const char* const found = length > 0 ? std::strstr(text, "\nUmask:") : nullptr;
  if (found == nullptr) return std::nullopt;
  return static_cast<mode_t>(std::strtoul(found + std::strlen("\nUmask:"), nullptr, 8));
}

}  // namespace

void remember_start() {
  std::error_code ignored;  // without a folder, relative paths stay relative
  folder = std::filesystem::current_path(ignored);
  first_umask = current_umask();
}

std::filesystem::path from_start(const std::filesystem::path& path) {
  return path.empty() ? path : folder / path;
}

bool give_start_permissions(int file) noexcept {
  if (!first_umask || current_umask() == first_umask) return true;
  constexpr mode_t wanted = 0666;
  return ::fchmod(file, wanted & ~*first_umask) == 0;
}

}  // namespace ctxbroker::sample_host
