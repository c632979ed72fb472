// SPDX-License-Identifier: Apache-2.0
// The files that a library needs, read from the files alone: nothing is loaded.
//
// A process keeps one library for each SONAME. Where two plug-ins bring different versions of one,
// the second plug-in gets the first one's, and the system's loader says nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace ctxbroker::detail {

struct NeededFile {
  std::string name;            // the SONAME that is needed
  std::filesystem::path file;  // that the loader finds for it
  std::filesystem::path by;    // the library that needs it
};

// Searches as the system's loader does. One thread at a time.
class NeededFiles {
 public:
  // Reads what the loader looks at beside the library: the environment, the program's run path, the
  // system's cache. Throws std::bad_alloc.
  NeededFiles();

  // Returns what the library needs, and what that needs, as if the library were alone in the
  // process. Without the C and C++ libraries, the driver, and what is not found. A file that is no
  // library needs nothing. Throws std::bad_alloc.
  std::vector<NeededFile> of(const std::filesystem::path& library);

 private:
  struct Dynamic {
    std::uint16_t machine = 0;  // 0: it is no library
    std::vector<std::string> needed;
    std::vector<std::string> run_path, old_run_path;  // DT_RUNPATH and DT_RPATH: folders
  };
  const Dynamic& read(const std::filesystem::path& file);
  bool fits(const std::filesystem::path& file, std::uint16_t machine);
  std::filesystem::path find(const std::string& name, const std::vector<std::string>& old_run_paths,
                             const Dynamic& user);

  std::vector<std::string> program_run_path_, environment_;
  std::unordered_map<std::string, std::string> cache_;  // of the system: files by name
  std::map<std::filesystem::path, Dynamic> known_;
};

// Returns whether two files are the same library: one file, or files with the same content.
bool is_same_library(const std::filesystem::path& one, const std::filesystem::path& other);

// Says, in one sentence each, which libraries `library` needs that the process has in other
// versions. Throws std::bad_alloc. Any thread.
std::vector<std::string> find_other_versions(const std::filesystem::path& library);

}  // namespace ctxbroker::detail
