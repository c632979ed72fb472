// SPDX-License-Identifier: Apache-2.0
// The plug-ins on this machine, as a scan found them, and the way from a name to a plug-in. Only
// what is used is loaded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "ctxbroker/scan.hpp"
#include "options.hpp"
#include "plugin_argument.hpp"

namespace ctxbroker::sample_host {

// Scans the folders of the options, then those of the environment, those of this program's build
// or installation, and the standard ones. Throws Failure (usage) in three cases: a
// folder that the user named does not exist, no library has the name behind --enable or --disable,
// or the list of disabled libraries is damaged and these two cannot change it.
ScanResult scan_plugins(const Options& options);

// The libraries that cannot be used, though nobody has disabled them.
std::vector<const ScannedLibrary*> problems(const ScanResult& found);
// One sentence for each of them, for each duplicate, and for what else the scan noticed.
std::vector<std::string> warnings(const ScanResult& found);
// Without those that are about one library.
std::vector<std::string> general_warnings(const ScanResult& found);
// Advice about a library that cannot be used: "; install it again, ...". Empty: nothing to do.
const char* advice(const ScannedLibrary& library);
// Folders that were searched and are not there.
std::vector<std::filesystem::path> missing_folders(const ScanResult& found);

// Warns of each id in the policy file that no plug-in here has, and no tenant of its patterns: the
// first mistake of a person who writes one. `used` are the command's own plug-ins. Scans only if an
// id is none of theirs.
void warn_of_unknown_ids(const Options& options, const std::vector<const PluginDescription*>& used);

// One plug-in of one library. `description` lives as long as `library` or a copy of it.
struct Choice {
  PluginLibrary library;
  const PluginDescription* description = nullptr;
};

// Finds a plug-in by its id, else by its short name. It belongs to `found`. Throws Failure
// (plugin): unknown, with the nearest name and the list of all, or with what is wrong with its
// library; ambiguous, with the ids it may mean. Failure (usage): the list of disabled libraries is
// damaged.
const PluginDescription& find_plugin(const ScanResult& found, const std::string& name);
// The same, and loads its library. Throws also the broker's Error.
Choice find_choice(Broker& broker, const ScanResult& found, const std::string& name);

// Throws Failure (plugin) if the library that `argument` names by path does not exist.
void check_library(const PluginArgument& argument);
// A plug-in of the library that `argument` names by path. Throws Failure (plugin), or the broker's
// Error when the library cannot be loaded.
Choice load_choice(Broker& broker, const PluginArgument& argument);

}  // namespace ctxbroker::sample_host
