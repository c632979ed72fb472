// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds the plug-ins of a machine without loading one into the host.
///
///     const ScanResult found = scan();
///     for (const PluginDescription* plugin : found.plugins()) show(plugin->name);
///     ...
///     PluginLibrary library = broker.load(found.find("blur")->library_path);
///
/// A library with a manifest beside it is described by that. Any other one is loaded by a scanning
/// process, and what it says is kept in a cache. A library that crashes or hangs there is named in
/// the result, and is not tried again until its file changes. docs/discovery.md explains the rest.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/export.hpp"
#include "ctxbroker/plugin_description.hpp"

namespace ctxbroker {

/// How far a scan is. It is valid during the call.
struct ScanProgress {
  std::size_t done = 0;   ///< Libraries whose state is known.
  std::size_t total = 0;  ///< All libraries that were found.
  /// The library that the scan has just begun to load, or is done with.
  const std::filesystem::path& library;
  bool begins = false;  ///< Whether it has just begun.
};

/// What to scan, and how.
///
/// Where a host runs with raised privileges (AT_SECURE), no environment variable counts: neither
/// CTXBROKER_PLUGIN_PATH, nor HOME, nor those of the cache. Files and folders into which everybody
/// may write are then refused.
///
/// While a broker is open, the variables count as they were when the first one was opened. So a
/// plug-in cannot change them.
struct ScanOptions {
  /// Folders to search first, such as those of a command-line option. A folder that is not there is
  /// passed over. Subfolders are not searched.
  std::vector<std::filesystem::path> first{};
  /// Whether to search the folders of CTXBROKER_PLUGIN_PATH, which are separated by ':', after
  /// those of `first`.
  bool environment = true;
  /// Folders to search next, such as the host's own plug-in folder.
  std::vector<std::filesystem::path> beside{};
  /// Whether to search ~/.local/lib/ctxbroker/plugins, /usr/local/lib/ctxbroker/plugins and
  /// /usr/lib/ctxbroker/plugins last.
  bool standard = true;
  /// Which libraries to use, as shell patterns: "blur*.so" is compared with the file's name,
  /// "/opt/vendor/*" with its whole path, because there is a '/' in it. None: all.
  std::vector<std::string> allow{};
  /// Which libraries not to use, as `allow`. It is stronger than `allow`.
  std::vector<std::string> deny{};
  /// How long loading one library may take. At least 1 ms.
  std::chrono::milliseconds deadline{10000};
  /// How many libraries to load at once, at most 64. 0: one for each of the machine's processors.
  unsigned at_once = 0;
  /// Runs nothing: a library is described by its manifest, or as an earlier scan found it.
  bool safe = false;
  /// Looks at all libraries anew, also at those that have crashed or hung, and forgets the missing
  /// ones. Manifests are still believed.
  bool rescan = false;
  /// What scans found. Empty: $XDG_CACHE_HOME/ctxbroker/scan-VERSION.jsonl, or the same in
  /// ~/.cache. It need not be there.
  std::filesystem::path cache_file{};
  bool use_cache = true;  ///< Whether to read and write cache_file.
  /// Which libraries the user has disabled, as set_library_enabled writes it. Empty:
  /// $XDG_CONFIG_HOME/ctxbroker/disabled.json, or the same in ~/.config.
  std::filesystem::path choices_file{};
  /// The program that loads libraries: ctxb-scan, or a host program that calls
  /// run_scan_program. Empty: ctxb-scan beside the broker's library, or in ../bin as seen from it.
  std::filesystem::path program{};
  /// Called on the scanning thread for each library that is loaded. False ends the scan: libraries
  /// that it has not got to are missing in the result, and the next scan goes on with them.
  std::function<bool(const ScanProgress&)> progress{};
};

/// What a scan knows of a library.
enum class LibraryState {
  enabled,   ///< It can be used.
  disabled,  ///< The user has disabled it, or the host's lists leave it out.
  /// It cannot be loaded, it is no plug-in, safe mode knows nothing of it, or the list of disabled
  /// libraries cannot be read.
  could_not_load,
  crashed,  ///< It ended the process that loaded it.
  hung,     ///< Loading it did not end in time.
  missing,  ///< An earlier scan found it. The file is gone now, and its folder is not.
};

/// Returns "enabled", "disabled", "could_not_load", "crashed", "hung" or "missing". Static text.
/// Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(LibraryState state) noexcept;

/// Where a scan has its knowledge of a library from.
enum class LibrarySource {
  none,      ///< It knows nothing of the library's content.
  scan,      ///< A scanning process has just loaded it.
  cache,     ///< An earlier scan did.
  manifest,  ///< The manifest beside the library says so.
};

/// Returns "none", "scan", "cache" or "manifest". Static text. Thread-safe.
[[nodiscard]] CTXB_API const char* to_string(LibrarySource source) noexcept;

/// One library file.
struct ScannedLibrary {
  std::filesystem::path path;  ///< In the folder in which it was found.
  LibraryState state = LibraryState::could_not_load;
  LibrarySource source = LibrarySource::none;
  std::string reason;         ///< Why it is not enabled, in one sentence; else empty.
  std::uint32_t strikes = 0;  ///< How often this file has crashed or hung.
  /// What is known of its plug-ins, also when the library is disabled or missing.
  std::vector<PluginDescription> plugins;
};

/// Two enabled libraries that have a plug-in of the same id.
struct ScanDuplicate {
  std::string plugin;                 ///< The id.
  std::filesystem::path used;         ///< The library with the higher version.
  std::filesystem::path passed_over;  ///< The other one. With equal versions, it was found later.
  std::string text;                   ///< The same in one sentence.
};

/// What a scan found.
struct CTXB_API ScanResult {
  std::vector<std::filesystem::path> folders;  ///< That were searched, in order.
  /// One for each file whose name ends with ".so", in the order of the folders and then of the
  /// names; behind them those that are missing.
  std::vector<ScannedLibrary> libraries;
  std::vector<ScanDuplicate> duplicates;
  /// Troubles that are not of one library, in sentences: a damaged cache or list, a manifest that
  /// is not believed, a scanning program that does not start, and libraries that plug-ins need in
  /// different versions, of which a process has only one.
  std::vector<std::string> notes;
  /// Why the list of disabled libraries (ScanOptions::choices_file) cannot be read. Then no library
  /// is enabled, and `notes` has this text too. Empty: it can be read, or there is none.
  std::string choices_trouble;
  bool complete = true;  ///< Whether all files were looked at; see ScanOptions::progress.

  /// Returns the plug-ins of the enabled libraries, without those that are passed over, in the
  /// order of the libraries. They belong to this object.
  [[nodiscard]] std::vector<const PluginDescription*> plugins() const&;
  std::vector<const PluginDescription*> plugins() const&& = delete;
  /// Returns the plug-in of plugins() with this id, else the only one with this short name, else
  /// null. It belongs to this object.
  [[nodiscard]] const PluginDescription* find(std::string_view name) const&;
  const PluginDescription* find(std::string_view name) const&& = delete;
};

/// Looks for plug-in libraries, and describes what is in them. No library is loaded into this
/// process. A scan that is cut short, even by the end of the process, keeps what it has found, and
/// several hosts can scan at once.
///
/// @throws Error  `invalid_argument`, which names the option. Whatever else goes wrong is a state
///                of a library or a note.
/// Thread-safe. If no broker is open, no thread may change the environment during the call.
[[nodiscard]] CTXB_API ScanResult scan(const ScanOptions& options = {});

/// Enables or disables a library for this user. The next scan takes it into account.
///
/// @param library  the library's file, as ScannedLibrary::path has it. It need not be there.
/// @param options  choices_file is taken from here.
/// @throws Error  `output_file` when the choice cannot be kept; `invalid_argument` when the path is
///                empty, or the file of choices is damaged, with the file and the place in it.
/// Thread-safe. Of two processes that choose at the same moment, one may be forgotten.
CTXB_API void set_library_enabled(const std::filesystem::path& library, bool enabled,
                                  const ScanOptions& options = {});

/// Returns the result as JSON with the schema "ctxbroker.scan/1". Thread-safe.
[[nodiscard]] CTXB_API std::string to_json(const ScanResult& result);

/// The main function of a scanning program, for hosts that do not ship ctxb-scan:
///
///     int main(int argc, char** argv) { return ctxbroker::run_scan_program({argv + 1, argv +
///     argc}); }
///
/// Call it before the program starts a thread.
///
/// @param arguments  without the program's name.
/// @return the program's exit status.
CTXB_API int run_scan_program(const std::vector<std::string>& arguments) noexcept;

}  // namespace ctxbroker
