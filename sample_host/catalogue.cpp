// SPDX-License-Identifier: Apache-2.0
#include "catalogue.hpp"

#include <map>

#include "ctxbroker/plugin_search.hpp"
#include "exit_code.hpp"
#include "suggestion.hpp"

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

Failure unknown_plugin(const std::string& name, const Catalogue& catalogue) {
  std::vector<std::string> short_names;
  std::vector<std::string> all_names;
  for (const PluginDescription* plugin : catalogue.plugins()) {
    short_names.push_back(plugin->short_name);
    all_names.push_back(plugin->short_name);
    all_names.push_back(plugin->id);
  }
  std::string text = "there is no plug-in \"" + name + "\"";
  const std::string guess = nearest(name, all_names);
  if (!guess.empty()) text += "; did you mean \"" + guess + "\"?";
  if (short_names.empty()) {
    text += "; no plug-in was found in " + folder_list(catalogue.folders()) +
            "; name another folder with --plugin-path";
  } else {
    text += (guess.empty() ? "; the plug-ins are: " : " The plug-ins are: ") + join(short_names);
  }
  const std::size_t bad = catalogue.problems().size();
  if (bad > 0) {
    text += " (" + std::to_string(bad) + (bad == 1 ? " library" : " libraries") +
            " could not be used: see sample_host list)";
  }
  return {ExitCode::plugin, text};
}

}  // namespace

std::vector<std::filesystem::path> plugin_folders(const std::vector<std::filesystem::path>& first) {
  std::error_code error;
  for (const std::filesystem::path& folder : first) {
    if (std::filesystem::is_directory(folder, error)) continue;
    throw Failure(ExitCode::usage, "--plugin-path \"" + folder.string() +
                                       "\" is not a folder, or cannot be read; name another");
  }
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  std::vector<std::filesystem::path> beside;
  if (!error) {
    const std::filesystem::path prefix = program.parent_path().parent_path();
    beside = {prefix / "plugins", prefix / CTXB_INSTALLED_PLUGINS};
  }
  return plugin_search_path(first, beside);
}

Catalogue::Catalogue(Broker& broker, const std::vector<std::filesystem::path>& folders)
    : folders_(folders) {
  for (const std::filesystem::path& file : find_plugin_libraries(folders)) {
    try {
      libraries_.push_back(broker.load(file));
    } catch (const Error& error) {
      problems_.push_back({file, error.kind(), error.what()});
    }
  }
}

std::vector<const PluginDescription*> Catalogue::plugins() const {
  std::vector<const PluginDescription*> all;
  for (const PluginLibrary& library : libraries_) {
    for (const PluginDescription& plugin : library.plugins()) all.push_back(&plugin);
  }
  return all;
}

std::vector<std::string> Catalogue::passed_over(const std::string& id) const {
  std::map<std::string, const PluginLibrary*> first;
  std::vector<std::string> texts;
  for (const PluginLibrary& library : libraries_) {
    for (const PluginDescription& plugin : library.plugins()) {
      const auto [known, is_new] = first.emplace(plugin.id, &library);
      if (is_new || (!id.empty() && id != plugin.id)) continue;
      texts.push_back("plug-in " + plugin.id + " is in \"" + known->second->path().string() +
                      "\", which is used, and in \"" + library.path().string() +
                      "\"; to use the second one, give its path");
    }
  }
  return texts;
}

Choice Catalogue::find(const std::string& name) const {
  std::vector<Choice> by_short_name;
  std::vector<std::string> ids;
  for (const PluginLibrary& library : libraries_) {
    for (const PluginDescription& plugin : library.plugins()) {
      if (plugin.id == name) return {library, &plugin};
      if (plugin.short_name != name) continue;
      // The same id in a later folder is another copy of the same plug-in: the first counts.
      bool known = false;
      for (const std::string& id : ids) known = known || id == plugin.id;
      if (known) continue;
      by_short_name.push_back({library, &plugin});
      ids.push_back(plugin.id);
    }
  }
  if (by_short_name.empty()) throw unknown_plugin(name, *this);
  if (by_short_name.size() > 1) {
    throw Failure(ExitCode::plugin, "plug-in name \"" + name + "\" is ambiguous; it can mean " +
                                        join(ids) + "; write the whole id");
  }
  return by_short_name.front();
}

Choice load_choice(Broker& broker, const PluginArgument& argument) {
  std::error_code error;
  if (!std::filesystem::exists(argument.library, error)) {
    throw Failure(ExitCode::plugin,
                  "plug-in library \"" + argument.library.string() +
                      "\" does not exist; sample_host list shows the plug-ins that were found");
  }
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
