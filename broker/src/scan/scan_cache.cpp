// SPDX-License-Identifier: Apache-2.0
#include "scan/scan_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "ctxbroker/error.hpp"
#include "ctxbroker/version.hpp"
#include "observe/whole_file.hpp"
#include "plugin/description_json.hpp"
#include "process/environment.hpp"

namespace ctxbroker::detail {
namespace {

namespace fs = std::filesystem;
using json::Json;
using json::Location;
using json::member;
using json::required;

constexpr const char* cache_schema = "ctxbroker.scan_cache/1";
constexpr LibraryState kept_states[] = {LibraryState::enabled, LibraryState::could_not_load,
                                        LibraryState::crashed, LibraryState::hung};

// An empty line in front ends what another process wrote half.
std::string header_line() {
  return "\n" + Json{{"schema", cache_schema}}.dump() + "\n";
}

std::string line_text(const Json& json, const Location& line, const char* name) {
  const Json& value = required(json, line, name);
  if (!value.is_string()) member(line, name).refuse("it is no text");
  return value.get<std::string>();
}

std::uint64_t line_number(const Json& json, const Location& line, const char* name) {
  const auto number = json::whole_number(required(json, line, name), INT64_MAX);
  if (!number) member(line, name).refuse("it is no whole number");
  return *number;
}

std::int64_t line_time(const Json& json, const Location& line, const char* name) {
  const Json& value = required(json, line, name);
  if (!value.is_number_integer()) member(line, name).refuse("it is no whole number");
  return value.get<std::int64_t>();
}

CacheEntry read_entry(const Json& json, const Location& line, const std::string& path) {
  CacheEntry entry;
  entry.stamp = {line_number(json, line, "size"), line_time(json, line, "modified"),
                 line_time(json, line, "changed")};
  const std::string state = line_text(json, line, "state");
  const auto* kept = std::find_if(std::begin(kept_states), std::end(kept_states),
                                  [&](LibraryState one) { return state == to_string(one); });
  if (kept == std::end(kept_states)) member(line, "state").refuse("it is no state");
  entry.state = *kept;
  const std::string source = line_text(json, line, "source");
  entry.source =
      source == to_string(LibrarySource::manifest) ? LibrarySource::manifest : LibrarySource::scan;
  if (json.contains("reason")) entry.reason = line_text(json, line, "reason");
  if (json.contains("strikes")) {
    entry.strikes = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(line_number(json, line, "strikes"), UINT32_MAX));
  }
  if (entry.state == LibraryState::enabled || json.contains("plugins")) {
    entry.plugins = read_plugins(required(json, line, "plugins"), member(line, "plugins"), path);
  }
  return entry;
}

void read_line(std::string_view text, const Location& line, CacheText& cache) {
  const Json json = json::parse(text, line.document);
  if (!json.is_object()) line.refuse("it is no JSON object");
  if (json.contains("schema")) {
    if (json.at("schema") != cache_schema) line.refuse("it is of another version");
    cache.has_header = true;
    return;
  }
  std::string path = line_text(json, line, "file");
  CacheEntry entry = read_entry(json, line, path);
  cache.entries.insert_or_assign(std::move(path), std::move(entry));
  ++cache.lines;
}

}  // namespace

CacheText parse_cache(std::string_view text) {
  CacheText cache;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    try {
      read_line(line, {"line " + std::to_string(number), "$"}, cache);
      // Whatever comes before the first line of ours is somebody else's.
      if (!cache.has_header)
        Location{"line " + std::to_string(number), ""}.refuse("it is no header");
    } catch (const json::DocumentError& error) {
      if (cache.trouble.empty()) cache.trouble = error.what();
      if (!cache.has_header) return {{}, 0, std::move(cache.trouble), false};
    }
  }
  return cache;
}

std::string cache_line(const std::string& path, const CacheEntry& entry) {
  Json json{{"file", path},
            {"size", entry.stamp.size},
            {"modified", entry.stamp.modified},
            {"changed", entry.stamp.changed},
            {"state", to_string(entry.state)},
            {"source", to_string(entry.source)}};
  if (!entry.reason.empty()) json["reason"] = entry.reason;
  if (entry.strikes != 0) json["strikes"] = entry.strikes;
  if (!entry.plugins.empty()) json["plugins"] = to_json(entry.plugins);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

ScanCache::ScanCache(fs::path file, std::vector<std::string>& notes)
    : file_(std::move(file)), notes_(notes) {
  std::error_code error;
  if (file_.empty() || (!fs::exists(file_, error) && !error)) return;
  if (!error && !fs::is_regular_file(file_, error)) {
    notes_.push_back("nothing is kept: the cache \"" + file_.string() + "\" is no file");
    file_.clear();
    return;
  }
  CacheText cache;
  try {
    cache = parse_cache(json::read_text(file_, "cache", limits::cache_file));
  } catch (const json::DocumentError& failed) {
    cache.trouble = failed.what();
  }
  entries_ = std::move(cache.entries);
  is_untidy_ = cache.lines != entries_.size() || !cache.trouble.empty();
  if (!cache.trouble.empty()) {
    notes_.push_back("the cache \"" + file_.string() +
                     "\" is damaged, and is mended: " + cache.trouble);
  }
  if (!cache.has_header) write_all({});  // lines that are added now would not be read
}

const CacheEntry* ScanCache::find(const fs::path& library) const {
  const auto found = entries_.find(library.string());
  return found == entries_.end() ? nullptr : &found->second;
}

void ScanCache::put(const fs::path& library, CacheEntry entry) {
  const std::string path = library.string();
  const std::string line = cache_line(path, entry);
  known_here_.insert(path);
  is_untidy_ = !entries_.insert_or_assign(path, std::move(entry)).second || is_untidy_;
  if (!file_.empty() && !append("\n" + line)) fail(std::generic_category().message(errno));
}

void ScanCache::forget(const fs::path& library) {
  known_here_.insert(library.string());
  is_untidy_ = entries_.erase(library.string()) != 0 || is_untidy_;
}

void ScanCache::finish() {
  if (file_.empty() || !is_untidy_) return;
  // Entries that another process has added meanwhile stay.
  CacheEntries all = entries_;
  try {
    for (auto& [path, entry] :
         parse_cache(json::read_text(file_, "cache", limits::cache_file)).entries) {
      if (known_here_.count(path) == 0) all.insert_or_assign(path, std::move(entry));
    }
  } catch (const json::DocumentError&) {  // NOLINT(bugprone-empty-catch): it is written anew
  }
  write_all(all);
}

void ScanCache::fail(const std::string& why) {
  notes_.push_back("nothing more is kept: the cache \"" + file_.string() +
                   "\" cannot be written: " + why);
  file_.clear();
}

// In one call, so that lines of several processes do not mix.
bool ScanCache::append(const std::string& text) {
  std::error_code error;
  fs::create_directories(file_.parent_path(), error);
  const int file =
      ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  if (file < 0) return false;
  struct stat status {};
  const std::string whole =
      ::fstat(file, &status) == 0 && status.st_size == 0 ? header_line() + text : text;
  const ssize_t done = ::write(file, whole.data(), whole.size());
  const int failed = done == static_cast<ssize_t>(whole.size()) ? 0 : done < 0 ? errno : ENOSPC;
  ::close(file);
  errno = failed;
  return failed == 0;
}

void ScanCache::write_all(const CacheEntries& entries) {
  try {
    write_own_file(file_, [&](const auto& take) {
      take(header_line());
      for (const auto& [path, entry] : entries) take(cache_line(path, entry));
    });
    is_untidy_ = false;
  } catch (const Error& error) {
    fail(error.message());
  }
}

fs::path default_scan_cache() {
  const fs::path folder = user_folder("XDG_CACHE_HOME", ".cache");
  return folder.empty() ? folder : folder / (std::string("scan-") + version() + ".jsonl");
}

}  // namespace ctxbroker::detail
