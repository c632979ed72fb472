// SPDX-License-Identifier: Apache-2.0
// Libraries that plug-ins need in different versions.
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "plugin/needed_files.hpp"
#include "scan/scan.hpp"

namespace ctxbroker::detail {
namespace {

namespace fs = std::filesystem;

struct Version {
  fs::path file;
  std::vector<std::string> users;  // plug-in libraries
};

Version& version_of(std::vector<Version>& versions, const fs::path& file) {
  for (Version& one : versions) {
    if (is_same_library(one.file, file)) return one;
  }
  versions.push_back({file, {}});
  return versions.back();
}

}  // namespace

std::vector<std::string> find_version_conflicts(const std::vector<ScannedLibrary>& libraries) {
  std::map<std::string, std::vector<Version>> all;  // by SONAME
  NeededFiles needed_files;
  for (const ScannedLibrary& library : libraries) {
    if (library.state != LibraryState::enabled) continue;
    std::error_code error;
    const fs::path canonical = fs::canonical(library.path, error);
    if (error) continue;
    for (const NeededFile& needed : needed_files.of(canonical)) {
      version_of(all[needed.name], needed.file).users.push_back(library.path.filename().string());
    }
  }
  std::vector<std::string> texts;
  for (const auto& [name, versions] : all) {
    if (versions.size() < 2) continue;
    std::string text = "plug-ins need different versions of " + name + ": ";
    for (const Version& one : versions) {
      std::string users;
      for (const std::string& user : one.users) users += (users.empty() ? "" : ", ") + user;
      text +=
          (&one == &versions.front() ? "\"" : "; \"") + one.file.string() + "\" (" + users + ")";
    }
    texts.push_back(text +
                    ". In one process all of them get the version that is loaded first; load the "
                    "plug-ins of the others in workers");
  }
  return texts;
}

}  // namespace ctxbroker::detail
