// SPDX-License-Identifier: Apache-2.0
// Which folders are searched, and which files in them may be plug-in libraries. Nothing is opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ctxbroker/scan.hpp"

namespace ctxbroker::detail {

// What changes when a file does.
struct LibraryStamp {
  std::uint64_t size = 0;     // bytes
  std::int64_t modified = 0;  // ns since 1970: its content
  std::int64_t changed = 0;   // ns since 1970: also its name, its owner and its permissions
  bool operator==(const LibraryStamp&) const = default;
};

struct LibraryFile {
  std::filesystem::path path;  // absolute
  LibraryStamp stamp;
  std::string refusal;  // why nobody should look into it, in one sentence; empty: somebody may
};

// Whether this process runs with raised privileges, such as those of a set-user-ID program.
bool is_elevated() noexcept;

// Absolute, and none twice. `elevated` passes over what comes from the environment, and folders
// into which everybody may write, with a note.
std::vector<std::filesystem::path> search_folders(const ScanOptions& options, bool elevated,
                                                  std::vector<std::string>& notes);

// All files whose name ends with ".so", in the order of the folders and then of the names.
std::vector<LibraryFile> library_files(const std::vector<std::filesystem::path>& folders,
                                       bool elevated, std::vector<std::string>& notes);

// Whether everybody may write to this file or folder, or replace it.
bool is_open_to_all(const std::filesystem::path& path);

}  // namespace ctxbroker::detail
