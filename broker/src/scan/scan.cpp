// SPDX-License-Identifier: Apache-2.0
#include "ctxbroker/scan.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "ctxbroker/error.hpp"
#include "ctxbroker/manifest.hpp"
#include "plugin/description_json.hpp"
#include "plugin/foreign_text.hpp"
#include "process/own_files.hpp"
#include "scan/choices.hpp"
#include "scan/crew.hpp"
#include "scan/library_files.hpp"
#include "scan/scan.hpp"
#include "scan/scan_cache.hpp"

namespace ctxbroker {
namespace detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* program_name = "ctxb-scan";
constexpr unsigned most_at_once = 64;

void check_option(bool holds, const std::string& what) {
  if (!holds) throw Error(ErrorKind::invalid_argument, "ScanOptions::" + what);
}

void check_scan(const ScanOptions& options) {
  check_option(options.deadline.count() >= 1, "deadline has to be at least 1 ms");
  check_option(options.deadline <= std::chrono::hours(24), "deadline has to be at most a day");
  check_option(options.at_once <= most_at_once, "at_once has to be at most 64");
  for (const auto* list : {&options.allow, &options.deny}) {
    for (const std::string& pattern : *list) {
      check_option(!pattern.empty(), "allow and deny must not hold an empty pattern");
    }
  }
}

bool matches(const std::vector<std::string>& patterns, const fs::path& path) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    const std::string text =
        pattern.find('/') == std::string::npos ? path.filename().string() : path.string();
    return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  });
}

// Returns whether the library may load another time, though its file stays the same: a library that
// it needs may be installed meanwhile, its init may find a licence, or the next process may write
// larger files.
bool may_change(const std::string& reason) {
  return reason.find("cannot open shared object file") != std::string::npos ||
         reason.find("cannot be initialised") != std::string::npos ||
         reason.find(file_size_limit_reached) != std::string::npos;
}

class Scan {
 public:
  Scan(const ScanOptions& options, bool elevated)
      : options_(options), elevated_(elevated), cache_(cache_file(), result_.notes) {}

  ScanResult run() {
    result_.folders = search_folders(options_, elevated_, result_.notes);
    files_ = library_files(result_.folders, elevated_, result_.notes);
    read_choices();
    for (const LibraryFile& file : files_) {
      result_.libraries.push_back(
          {file.path, LibraryState::could_not_load, LibrarySource::none, file.refusal, 0, {}});
    }
    std::vector<std::size_t> unknown;
    for (std::size_t index = 0; index < files_.size(); ++index) {
      if (!know(index)) unknown.push_back(index);
    }
    examine(unknown);
    add_missing();
    cache_.finish();
    result_.duplicates = find_duplicates(result_.libraries);
    for (std::string& text : find_version_conflicts(result_.libraries)) {
      result_.notes.push_back(std::move(text));
    }
    return std::move(result_);
  }

 private:
  fs::path cache_file() const {
    if (!options_.use_cache) return {};
    return options_.cache_file.empty() ? default_scan_cache() : options_.cache_file;
  }

  void read_choices() {
    try {
      disabled_ =
          read_disabled(options_.choices_file.empty() ? default_choices() : options_.choices_file);
    } catch (const json::DocumentError& error) {
      result_.choices_trouble =
          std::string("it cannot be told which libraries are disabled: ") + error.what();
      result_.notes.push_back(result_.choices_trouble);
    }
  }

  // Why the library is not to be used; empty: it is.
  std::string why_disabled(const fs::path& path) const {
    if (disabled_.count(path.string()) != 0) return "the user has disabled it";
    if (matches(options_.deny, path)) return "the host's deny list names it";
    if (!options_.allow.empty() && !matches(options_.allow, path)) {
      return "the host's allow list does not name it";
    }
    return {};
  }

  // Finds out what can be known without running code. False: the library has to be loaded.
  bool know(std::size_t index) {
    const LibraryFile& file = files_[index];
    ScannedLibrary& library = result_.libraries[index];
    if (!file.refusal.empty()) return true;
    const bool known = take_cached(file, library) || take_manifest(file, library);
    if (std::string why = why_disabled(file.path); !why.empty()) {
      library.state = LibraryState::disabled;
      library.reason = std::move(why);
      return true;
    }
    // Code that the user has disabled must not run because the list is damaged.
    if (!result_.choices_trouble.empty()) {
      library.state = LibraryState::could_not_load;
      library.reason = "it cannot be told whether the user has disabled it";
      return true;
    }
    if (known || !options_.safe) return known;
    library.reason =
        "it is not loaded in safe mode, it has no manifest, and no earlier scan has seen it";
    return true;
  }

  bool take_cached(const LibraryFile& file, ScannedLibrary& library) {
    const CacheEntry* const entry = cache_.find(file.path);
    if (entry == nullptr || entry->stamp != file.stamp) return false;
    library.strikes = entry->strikes;
    if (options_.rescan && !options_.safe) return false;
    library.state = entry->state;
    library.source =
        entry->source == LibrarySource::manifest ? LibrarySource::manifest : LibrarySource::cache;
    library.reason = entry->reason;
    library.plugins = entry->plugins;
    return true;
  }

  bool take_manifest(const LibraryFile& file, ScannedLibrary& library) {
    const fs::path path = manifest_path(file.path);
    std::error_code error;
    if (elevated_ && fs::exists(path, error) && is_open_to_all(path)) {
      result_.notes.push_back("manifest \"" + path.string() +
                              "\" is not believed: everybody may change it");
      return false;
    }
    ManifestReading reading = read_manifest(file.path);
    if (!reading.trouble.empty()) {
      if (reading.exists) result_.notes.push_back("not believed: " + reading.trouble);
      return false;
    }
    library.state = LibraryState::enabled;
    library.source = LibrarySource::manifest;
    library.plugins = std::move(reading.manifest.plugins);
    library.strikes = 0;
    keep(file, library);
    return true;
  }

  void keep(const LibraryFile& file, const ScannedLibrary& library) {
    if (library.state == LibraryState::could_not_load && may_change(library.reason)) {
      cache_.forget(file.path);
      return;
    }
    cache_.put(file.path, {file.stamp, library.state, library.source, library.reason,
                           library.strikes, library.plugins});
  }

  void examine(const std::vector<std::size_t>& unknown) {
    if (unknown.empty()) return;
    const fs::path program =
        options_.program.empty() ? beside_this_library(program_name) : options_.program;
    std::vector<fs::path> paths;
    paths.reserve(unknown.size());
    for (const std::size_t index : unknown) paths.push_back(files_[index].path);
    std::size_t done = files_.size() - unknown.size();
    std::vector<bool> is_done(unknown.size());
    const auto tell = [&](std::size_t at, bool begins) {
      return !options_.progress || options_.progress({done, files_.size(), paths[at], begins});
    };
    bool goes_on = true;
    CrewOrders orders;
    orders.program = program;
    orders.deadline = options_.deadline;
    orders.at_once = options_.at_once != 0
                         ? options_.at_once
                         : std::clamp(std::thread::hardware_concurrency(), 1U, most_at_once);
    orders.begins = [&](std::size_t at) { return goes_on && tell(at, true); };
    orders.done = [&](std::size_t at, const Examination& examination) {
      is_done[at] = true;
      ++done;
      take(files_[unknown[at]], result_.libraries[unknown[at]], examination);
      goes_on = tell(at, false) && goes_on;
    };
    const CrewResult end = examine_all(orders, paths);
    if (!end.trouble.empty()) {
      result_.notes.push_back("the scanning program \"" + program.string() + "\" " + end.trouble +
                              "; install ctxb-scan with the broker, or name another program in "
                              "ScanOptions::program");
    }
    for (std::size_t at = 0; at < unknown.size(); ++at) {
      if (is_done[at]) continue;
      result_.complete = false;
      result_.libraries[unknown[at]].reason =
          end.stopped ? "the scan was ended before it"
                      : "it was not looked at, because the scanning program does not work";
    }
  }

  void take(const LibraryFile& file, ScannedLibrary& library, const Examination& examination) {
    library.source = LibrarySource::scan;
    library.reason = take_message(examination.text.substr(0, longest_text).c_str());
    switch (examination.outcome) {
      case Outcome::described:
        take_answer(library, examination.text);
        break;
      case Outcome::could_not_load:
        library.state = LibraryState::could_not_load;
        library.strikes = 0;
        break;
      case Outcome::crashed:
      case Outcome::hung:
        library.state =
            examination.outcome == Outcome::crashed ? LibraryState::crashed : LibraryState::hung;
        ++library.strikes;
        break;
    }
    keep(file, library);
  }

  // Whatever the process says is held to the rules for descriptors, and is about this file alone.
  static void take_answer(ScannedLibrary& library, const std::string& text) {
    library.strikes = 0;
    try {
      library.plugins =
          read_plugins(json::parse(text, "its answer"), {"its answer", "$"}, library.path.string());
      library.state = LibraryState::enabled;
      library.reason.clear();
    } catch (const json::DocumentError& error) {
      library.state = LibraryState::could_not_load;
      library.reason = take_message(std::string(error.what()).substr(0, longest_text).c_str());
    }
  }

  // Those of folders that are there, so that a drive that is not plugged in loses nothing.
  void add_missing() {
    std::set<std::string> present;
    for (const LibraryFile& file : files_) present.insert(file.path.string());
    if (options_.rescan) forget_gone();
    for (const auto& [path, entry] : cache_.entries()) {
      const fs::path folder = fs::path(path).parent_path();
      std::error_code error;
      const bool is_searched = std::find(result_.folders.begin(), result_.folders.end(), folder) !=
                               result_.folders.end();
      if (!is_searched || present.count(path) != 0 || !fs::is_directory(folder, error)) continue;
      result_.libraries.push_back({path, LibraryState::missing, LibrarySource::cache,
                                   "its file is gone", entry.strikes, entry.plugins});
    }
  }

  void forget_gone() {
    std::vector<fs::path> gone;
    for (const auto& [path, entry] : cache_.entries()) {
      std::error_code error;
      if (!fs::exists(path, error)) gone.emplace_back(path);
    }
    for (const fs::path& path : gone) cache_.forget(path);
  }

  const ScanOptions& options_;
  bool elevated_;
  ScanResult result_;
  ScanCache cache_;
  std::vector<LibraryFile> files_;
  std::set<std::string> disabled_;
};

}  // namespace

ScanResult scan_as(const ScanOptions& options, bool elevated) {
  check_scan(options);
  return Scan(options, elevated).run();
}

}  // namespace detail

ScanResult scan(const ScanOptions& options) {
  return detail::scan_as(options, detail::is_elevated());
}

void set_library_enabled(const std::filesystem::path& library, bool enabled,
                         const ScanOptions& options) {
  const auto file = options.choices_file.empty() ? detail::default_choices() : options.choices_file;
  if (file.empty()) {
    throw Error(ErrorKind::output_file,
                "the choice cannot be kept: neither XDG_CONFIG_HOME nor HOME names a folder");
  }
  if (library.empty()) throw Error(ErrorKind::invalid_argument, "the library's path is empty");
  const std::string path = std::filesystem::absolute(library).lexically_normal().string();
  if (!detail::is_clean_text(path)) {
    throw Error(ErrorKind::invalid_argument, "the library's path is not UTF-8");
  }
  std::set<std::string> disabled;
  try {
    disabled = detail::read_disabled(file);
  } catch (const json::DocumentError& error) {
    throw Error(ErrorKind::invalid_argument, error.what());
  }
  const bool changed = enabled ? disabled.erase(path) != 0 : disabled.insert(path).second;
  if (changed) detail::write_disabled(file, disabled);
}

}  // namespace ctxbroker
