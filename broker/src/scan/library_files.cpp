// SPDX-License-Identifier: Apache-2.0
#include "scan/library_files.hpp"

#include <sys/auxv.h>
#include <sys/stat.h>

#include <algorithm>
#include <string_view>
#include <system_error>

#include "plugin/foreign_text.hpp"
#include "process/environment.hpp"

namespace ctxbroker::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* path_variable = "CTXBROKER_PLUGIN_PATH";
constexpr const char* plugin_folder = "lib/ctxbroker/plugins";
constexpr std::string_view library_suffix = ".so";

std::vector<fs::path> split(std::string_view text) {
  std::vector<fs::path> folders;
  while (!text.empty()) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    if (colon > 0) folders.emplace_back(text.substr(0, colon));
    text.remove_prefix(std::min(colon + 1, text.size()));
  }
  return folders;
}

std::vector<fs::path> standard_folders() {
  std::vector<fs::path> folders;
  const fs::path home = folder_from_environment("HOME");
  if (!home.empty()) folders.push_back(home / ".local" / plugin_folder);
  folders.push_back(fs::path("/usr/local") / plugin_folder);
  folders.push_back(fs::path("/usr") / plugin_folder);
  return folders;
}

std::int64_t nanoseconds(const timespec& time) {
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

LibraryFile look_at(const fs::path& path, bool elevated) {
  LibraryFile file{path, {}, {}};
  struct stat status {};
  if (!is_clean_text(path.native())) {
    file.refusal = "its name is not UTF-8; give it another one";
  } else if (::stat(path.c_str(), &status) != 0) {
    file.refusal = "it cannot be looked at: " + std::generic_category().message(errno);
  } else if (!S_ISREG(status.st_mode)) {
    file.refusal = "it is " + kind_of(status.st_mode) + ", not a library";
  } else if (elevated && is_open_to_all(path)) {
    file.refusal =
        "everybody may change it, and this program runs with raised privileges; take away the "
        "right to write from others (chmod o-w)";
  }
  if (!file.refusal.empty()) return file;
  file.stamp = {static_cast<std::uint64_t>(status.st_size), nanoseconds(status.st_mtim),
                nanoseconds(status.st_ctim)};
  return file;
}

}  // namespace

bool is_elevated() noexcept {
  return ::getauxval(AT_SECURE) != 0;
}

bool is_open_to_all(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  for (const fs::path& one : {real, real.parent_path()}) {
    struct stat status {};
    if (error || ::stat(one.c_str(), &status) != 0) return true;  // nobody knows
    if ((status.st_mode & S_IWOTH) != 0) return true;
    if (S_ISDIR(status.st_mode)) break;
  }
  return false;
}

std::vector<fs::path> search_folders(const ScanOptions& options, bool elevated,
                                     std::vector<std::string>& notes) {
  std::vector<fs::path> given = options.first;
  const auto append = [&](const std::vector<fs::path>& more) {
    given.insert(given.end(), more.begin(), more.end());
  };
  if (options.environment && !elevated) {
    append(split(kept_secure_variable(path_variable).value_or("")));
  }
  append(options.beside);
  if (options.standard) append(standard_folders());

  std::vector<fs::path> folders;
  for (const fs::path& one : given) {
    if (one.empty()) continue;
    std::error_code error;
    fs::path folder = fs::absolute(one, error).lexically_normal();
    if (!folder.has_filename()) folder = folder.parent_path();  // of "plugins/"
    if (std::find(folders.begin(), folders.end(), folder) != folders.end()) continue;
    if (elevated && fs::is_directory(folder, error) && is_open_to_all(folder)) {
      notes.push_back("the folder \"" + folder.string() +
                      "\" is passed over: everybody may write into it, and this program runs with "
                      "raised privileges");
      continue;
    }
    folders.push_back(std::move(folder));
  }
  return folders;
}

std::vector<LibraryFile> library_files(const std::vector<fs::path>& folders, bool elevated,
                                       std::vector<std::string>& notes) {
  std::vector<LibraryFile> files;
  for (const fs::path& folder : folders) {
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->path().extension() == library_suffix) paths.push_back(entry->path());
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      notes.push_back("the folder \"" + folder.string() + "\" cannot be read: " + error.message());
    }
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) files.push_back(look_at(path, elevated));
  }
  return files;
}

}  // namespace ctxbroker::detail
