// SPDX-License-Identifier: Apache-2.0
// The file that is written when its name is a link's.
#pragma once

#include <filesystem>
#include <system_error>

namespace ctxbroker::detail {

// Returns the path that the links at the end of `path` lead to, as a shell's "> path" writes it:
// the file need not be there. Sets `error` if a link cannot be read, or if the links lead in a
// circle.
inline std::filesystem::path behind_links(const std::filesystem::path& path,
                                          std::error_code& error) {
  constexpr int most_links = 40;  // of the kernel
  error.clear();
  std::filesystem::path target = path;
  std::error_code none;
  for (int links = 0; std::filesystem::is_symlink(target, none); ++links) {
    if (links == most_links) {
      error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
      return path;
    }
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) return path;
    target = target.parent_path() / next;
  }
  return target;
}

}  // namespace ctxbroker::detail
