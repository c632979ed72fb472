// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/plugin_search.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

namespace ctxbroker {
namespace {

namespace fs = std::filesystem;

constexpr const char* path_variable = "CTXBROKER_PLUGIN_PATH";
constexpr std::string_view library_suffix = ".so";

void append_unique(std::vector<fs::path>& folders, const fs::path& folder) {
  if (folder.empty()) return;
  if (std::find(folders.begin(), folders.end(), folder) == folders.end()) {
    folders.push_back(folder);
  }
}

std::vector<fs::path> split(std::string_view text) {
  std::vector<fs::path> folders;
  while (!text.empty()) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    if (colon > 0) folders.emplace_back(text.substr(0, colon));
    text.remove_prefix(std::min(colon + 1, text.size()));
  }
  return folders;
}

std::vector<fs::path> libraries_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->path().extension() == library_suffix && entry->is_regular_file(ignored)) {
      files.push_back(entry->path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::vector<fs::path> plugin_search_path(const std::vector<fs::path>& first,
                                         const std::vector<fs::path>& beside) {
  std::vector<fs::path> folders;
  for (const auto& folder : first) append_unique(folders, folder);
  // secure_getenv gives nothing to a process with raised privileges.
  if (const char* text = secure_getenv(path_variable); text != nullptr) {
    for (const auto& folder : split(text)) append_unique(folders, folder);
  }
  for (const auto& folder : beside) append_unique(folders, folder);
  return folders;
}

std::vector<fs::path> find_plugin_libraries(const std::vector<fs::path>& folders) {
  std::vector<fs::path> found;
  std::set<fs::path> names;
  for (const auto& folder : folders) {
    for (const auto& file : libraries_in(folder)) {
      if (names.insert(file.filename()).second) found.push_back(file);
    }
  }
  return found;
}

}  // namespace ctxbroker
