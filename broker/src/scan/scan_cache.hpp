// SPDX-License-Identifier: Apache-2.0
// What scans found, in a file. Each line is JSON and tells of one library; of two lines about one
// library, the later one counts. So a line is added for each library when it is known, and a scan
// that is cut short loses nothing. Lines of several processes stand behind each other.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/scan.hpp"
#include "scan/library_files.hpp"

namespace ctxbroker::detail {

struct CacheEntry {
  LibraryStamp stamp;
  LibraryState state = LibraryState::could_not_load;
  LibrarySource source = LibrarySource::scan;  // or manifest
  std::string reason;
  std::uint32_t strikes = 0;
  std::vector<PluginDescription> plugins;
};

using CacheEntries = std::map<std::string, CacheEntry>;  // by the libraries' paths

struct CacheText {
  CacheEntries entries;
  std::size_t lines = 0;  // with an entry
  std::string trouble;    // what is wrong with the first damaged line; empty: nothing
  bool has_header = false;
};

// Reads the text of a cache. Damaged lines are passed over.
CacheText parse_cache(std::string_view text);
std::string cache_line(const std::string& path, const CacheEntry& entry);

class ScanCache {
 public:
  // Reads the file. An empty path: nothing is kept.
  ScanCache(std::filesystem::path file, std::vector<std::string>& notes);

  const CacheEntries& entries() const noexcept { return entries_; }
  const CacheEntry* find(const std::filesystem::path& library) const;
  // Keeps an entry, at once.
  void put(const std::filesystem::path& library, CacheEntry entry);
  void forget(const std::filesystem::path& library);
  // Takes out of the file what does not count any more.
  void finish();

 private:
  void fail(const std::string& why);
  bool append(const std::string& text);
  void write_all(const CacheEntries& entries);

  std::filesystem::path file_;
  std::vector<std::string>& notes_;
  CacheEntries entries_;
  std::set<std::string> known_here_;  // what this scan said itself
  bool is_untidy_ = false;            // there are lines that do not count
};

// $XDG_CACHE_HOME/ctxbroker/scan-VERSION.jsonl, or empty.
std::filesystem::path default_scan_cache();

}  // namespace ctxbroker::detail
