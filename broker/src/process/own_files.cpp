// SPDX-License-Identifier: Apache-2.0
#include "process/own_files.hpp"

#include <dlfcn.h>

#include <system_error>

namespace ctxbroker::detail {
namespace {

std::filesystem::path own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&beside_this_library), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  std::error_code ignored;
  const auto path = std::filesystem::canonical(info.dli_fname, ignored);
  return path.empty() ? std::filesystem::path(info.dli_fname).parent_path() : path.parent_path();
}

// Found when the library is loaded: it may have been found by a relative path, and plug-ins may
// change the working folder.
const std::filesystem::path& folder_at_start() {
  static const auto* const folder = new std::filesystem::path(own_folder());
  return *folder;
}
[[maybe_unused]] const auto& found_at_start = folder_at_start();

}  // namespace

std::filesystem::path beside_this_library(const char* name) {
  const auto& folder = folder_at_start();
  const auto above = folder.parent_path();
  const std::filesystem::path candidates[] = {folder / name, above / "lib" / name,
                                              above / "bin" / name,
                                              above.parent_path() / "bin" / name};
  std::error_code ignored;
  for (const auto& candidate : candidates) {
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return candidates[0];
}

}  // namespace ctxbroker::detail
