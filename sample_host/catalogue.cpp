// SPDX-License-Identifier: Apache-2.0
#include "catalogue.hpp"

#include <algorithm>
#include <iterator>

#include "ctxbroker/policy.hpp"
#include "exit_code.hpp"
#include "logging.hpp"
#include "suggestion.hpp"
#include "text/shown_text.hpp"

namespace ctxbroker::sample_host {

namespace {

std::string names_of(const PluginLibrary& library) {
  std::vector<std::string> names;
  names.reserve(library.plugins().size());
  for (const PluginDescription& plugin : library.plugins()) names.push_back(plugin.short_name);
  return join(names);
}

std::string folder_list(const std::vector<std::filesystem::path>& folders) {
  std::vector<std::string> names;
  names.reserve(folders.size());
  for (const auto& folder : folders) names.push_back("\"" + folder.string() + "\"");
  return join(names);
}

bool has(const ScannedLibrary& library, const std::string& name) {
  return std::any_of(library.plugins.begin(), library.plugins.end(), [&](const auto& plugin) {
    return plugin.id == name || plugin.short_name == name;
  });
}

// "is hung: loading it took longer than 10000 ms"
std::string state_of(const ScannedLibrary& library) {
  const bool plain = library.state == LibraryState::could_not_load;
  std::string text = plain ? "cannot be used" : std::string("is ") + to_string(library.state);
  if (library.state == LibraryState::crashed || library.state == LibraryState::hung) {
    text = std::string("has ") + to_string(library.state);
  }
  return text + ": " + library.reason;
}

Failure unknown_plugin(const std::string& name, const ScanResult& found) {
  for (const ScannedLibrary& library : found.libraries) {
    if (library.state == LibraryState::enabled || !has(library, name)) continue;
    return {ExitCode::plugin, "plug-in \"" + name + "\" is in library \"" + library.path.string() +
                                  "\", which " + state_of(library) + advice(library)};
  }
  std::vector<std::string> short_names;
  std::vector<std::string> all_names;
  for (const PluginDescription* plugin : found.plugins()) {
    short_names.push_back(plugin->short_name);
    all_names.push_back(plugin->short_name);
    all_names.push_back(plugin->id);
  }
  std::string text = "there is no plug-in " + detail::excerpt(name);
  const std::string guess = nearest(name, all_names);
  if (!guess.empty()) text += "; did you mean \"" + guess + "\"?";
  if (short_names.empty()) {
    text += "; no plug-in was found in " + folder_list(found.folders) +
            "; name another folder with --plugin-path";
  } else {
    text += (guess.empty() ? "; the plug-ins are: " : " The plug-ins are: ") + join(short_names);
  }
  const auto bad = std::count_if(
      found.libraries.begin(), found.libraries.end(),
      [](const ScannedLibrary& library) { return library.state != LibraryState::enabled; });
  if (bad > 0) {
    text += " (" + std::to_string(bad) + (bad == 1 ? " library" : " libraries") +
            " could not be used: see sample_host list)";
  }
  return {ExitCode::plugin, text};
}

std::vector<std::filesystem::path> beside_program() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const std::filesystem::path prefix = program.parent_path().parent_path();
  return {prefix / "plugins", prefix / CTXB_INSTALLED_PLUGINS};
}

// The libraries that a word behind --enable or --disable means: a file's path or name, or a
// plug-in.
std::vector<std::filesystem::path> libraries_of(const ScanResult& found, const std::string& word) {
  std::vector<std::filesystem::path> paths;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(word, error).lexically_normal();
  for (const ScannedLibrary& library : found.libraries) {
    if (library.path == absolute || library.path.filename() == word || has(library, word)) {
      paths.push_back(library.path);
    }
  }
  if (!paths.empty()) return paths;
  throw Failure(ExitCode::usage, "\"" + word +
                                     "\" is no library and no plug-in that was found; sample_host "
                                     "list shows them");
}

// A damaged list leaves open which plug-ins the user wants to run.
void check_choices(const ScanResult& found) {
  if (!found.choices_trouble.empty()) throw Failure(ExitCode::usage, found.choices_trouble);
}

// The file's name or another program's list can be at fault, and not this program.
void choose(const std::filesystem::path& library, bool enabled) {
  try {
    set_library_enabled(library, enabled);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_argument) throw;
    throw Failure(ExitCode::usage, "library \"" + library.string() +
                                       "\": its choice is not kept: " + error.message());
  }
}

}  // namespace

ScanResult scan_plugins(const Options& options) {
  std::error_code error;
  for (const std::filesystem::path& folder : options.plugin_path) {
    if (std::filesystem::is_directory(folder, error)) continue;
    throw Failure(ExitCode::usage, "--plugin-path \"" + folder.string() +
                                       "\" is not a folder, or cannot be read; name another");
  }
  ScanOptions scan_options;
  scan_options.first = options.plugin_path;
  scan_options.beside = beside_program();
  scan_options.safe = options.safe;
  scan_options.rescan = options.rescan;
  scan_options.deadline = std::chrono::milliseconds(options.scan_timeout);
  scan_options.progress = [](const ScanProgress& progress) {
    if (progress.begins) log(Severity::info, "scan", "loading " + progress.library.string());
    return true;
  };
  ScanResult found = scan(scan_options);
  if (options.enable.empty() && options.disable.empty()) return found;
  check_choices(found);
  for (const auto* words : {&options.enable, &options.disable}) {
    for (const std::string& word : *words) {
      for (const auto& path : libraries_of(found, word)) {
        choose(path, words == &options.enable);
      }
    }
  }
  scan_options.rescan = false;
  return scan(scan_options);
}

std::vector<const ScannedLibrary*> problems(const ScanResult& found) {
  std::vector<const ScannedLibrary*> all;
  for (const ScannedLibrary& library : found.libraries) {
    const bool is_meant =
        library.state == LibraryState::enabled || library.state == LibraryState::disabled;
    if (!is_meant) all.push_back(&library);
  }
  return all;
}

const char* advice(const ScannedLibrary& library) {
  switch (library.state) {
    case LibraryState::crashed:
    case LibraryState::hung:
      return "; it is tried again when its file changes, or with sample_host list --rescan";
    case LibraryState::disabled:
      return "; sample_host list --enable enables it";
    case LibraryState::missing:
      return "; install it again, or forget it with sample_host list --rescan";
    default:
      return "";
  }
}

std::vector<std::string> general_warnings(const ScanResult& found) {
  std::vector<std::string> texts = found.notes;
  for (const ScanDuplicate& one : found.duplicates) texts.push_back(one.text);
  return texts;
}

std::vector<std::string> warnings(const ScanResult& found) {
  std::vector<std::string> texts = general_warnings(found);
  for (const ScannedLibrary* library : problems(found)) {
    texts.push_back("library \"" + library->path.string() + "\" " + state_of(*library) +
                    advice(*library));
  }
  return texts;
}

std::vector<std::filesystem::path> missing_folders(const ScanResult& found) {
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  std::copy_if(found.folders.begin(), found.folders.end(), std::back_inserter(missing),
               [&](const auto& folder) { return !std::filesystem::exists(folder, error); });
  return missing;
}

void warn_of_unknown_ids(const Options& options,
                         const std::vector<const PluginDescription*>& used) {
  if (options.policy.empty()) return;
  const Policy policy = read_policy(options.policy);
  std::vector<std::string> known;
  known.reserve(used.size() + policy.libraries.size());
  for (const PluginDescription* plugin : used) known.push_back(plugin->id);
  for (const LibraryPattern& pattern : policy.libraries) known.push_back(pattern.tenant);
  const auto is_known = [&](const auto& entry) {
    return std::find(known.begin(), known.end(), entry.first) != known.end();
  };
  if (std::all_of(policy.by_id.begin(), policy.by_id.end(), is_known)) return;
  const ScanResult found = scan_plugins(options);
  for (const ScannedLibrary& library : found.libraries) {
    for (const PluginDescription& plugin : library.plugins) known.push_back(plugin.id);
  }
  for (const auto& entry : policy.by_id) {
    if (is_known(entry)) continue;
    const std::string guess = nearest(entry.first, known);
    log(Severity::warning, "policy",
        "--policy \"" + options.policy.string() + "\": $.by_id[\"" + entry.first +
            "\"] has no effect, because no plug-in here has this id" +
            (guess.empty() ? "; sample_host list shows the ids"
                           : "; did you mean \"" + guess + "\"?"));
  }
}

const PluginDescription& find_plugin(const ScanResult& found, const std::string& name) {
  check_choices(found);
  std::vector<std::string> ids;
  const PluginDescription* chosen = nullptr;
  for (const PluginDescription* plugin : found.plugins()) {
    if (plugin->id != name && plugin->short_name != name) continue;
    if (plugin->id == name) ids.clear();
    chosen = plugin;
    ids.push_back(plugin->id);
    if (plugin->id == name) break;
  }
  if (chosen == nullptr) throw unknown_plugin(name, found);
  if (ids.size() > 1) {
    throw Failure(ExitCode::plugin, "plug-in name \"" + name + "\" is ambiguous; it can mean " +
                                        join(ids) + "; write the whole id");
  }
  for (const ScanDuplicate& one : found.duplicates) {
    if (one.plugin == chosen->id) log(Severity::warning, "plugin", one.text);
  }
  return *chosen;
}

Choice find_choice(Broker& broker, const ScanResult& found, const std::string& name) {
  const PluginDescription& chosen = find_plugin(found, name);
  const PluginLibrary library = broker.load(chosen.library_path);
  for (const PluginDescription& plugin : library.plugins()) {
    if (plugin.id == chosen.id) return {library, &plugin};
  }
  throw Failure(ExitCode::plugin, "library \"" + chosen.library_path + "\" does not hold plug-in " +
                                      chosen.id +
                                      ", which its manifest or the scan's cache names; run "
                                      "sample_host list --rescan");
}

void check_library(const PluginArgument& argument) {
  std::error_code error;
  if (std::filesystem::exists(argument.library, error)) return;
  throw Failure(ExitCode::plugin,
                "plug-in library \"" + argument.library.string() +
                    "\" does not exist; sample_host list shows the plug-ins that were found");
}

Choice load_choice(Broker& broker, const PluginArgument& argument) {
  check_library(argument);
  const PluginLibrary library = broker.load(argument.library);
  if (argument.plugin.empty()) {
    if (library.plugins().size() == 1) return {library, &library.plugins().front()};
    throw Failure(ExitCode::plugin, "plug-in library \"" + argument.library.string() +
                                        "\" holds several plug-ins (" + names_of(library) +
                                        "); write PATH#NAME");
  }
  for (const PluginDescription& plugin : library.plugins()) {
    if (plugin.id == argument.plugin || plugin.short_name == argument.plugin) {
      return {library, &plugin};
    }
  }
  throw Failure(ExitCode::plugin, "plug-in library \"" + argument.library.string() +
                                      "\" holds no plug-in \"" + argument.plugin +
                                      "\"; it holds: " + names_of(library));
}

}  // namespace ctxbroker::sample_host
