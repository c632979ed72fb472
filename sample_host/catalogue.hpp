// SPDX-License-Identifier: Apache-2.0
// The plug-in libraries on this machine, loaded, and the way from a name to a plug-in.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/error.hpp"
#include "plugin_argument.hpp"

namespace ctxbroker::sample_host {

// The broker's search path with `first` before it and behind it the two folders beside this
// program's own:
// ../plugins, of a build, and ../lib/ctxbroker/plugins, of an installation.
// Throws Failure (usage) when one of `first`, which the user named, is no folder.
std::vector<std::filesystem::path> plugin_folders(const std::vector<std::filesystem::path>& first);

// A library that was found and cannot be used.
struct Problem {
  std::filesystem::path library;
  ErrorKind kind = ErrorKind::plugin_load;
  std::string text;
};

// One plug-in of one library. `description` lives as long as `library` or a copy of it.
struct Choice {
  PluginLibrary library;
  const PluginDescription* description = nullptr;
};

class Catalogue {
 public:
  // Loads every library in `folders`; those that cannot be used become problems.
  Catalogue(Broker& broker, const std::vector<std::filesystem::path>& folders);

  const std::vector<std::filesystem::path>& folders() const noexcept { return folders_; }
  const std::vector<PluginLibrary>& libraries() const noexcept { return libraries_; }
  const std::vector<Problem>& problems() const noexcept { return problems_; }
  std::vector<const PluginDescription*> plugins() const;
  // What to say of the plug-ins called `id` that are passed over, because a library of an earlier
  // folder has one of the same id; without an id, of all of them.
  std::vector<std::string> passed_over(const std::string& id = {}) const;

  // By id, else by short name. Throws Failure (plugin): unknown, with the nearest name and the list
  // of all; ambiguous, with the ids it may mean.
  Choice find(const std::string& name) const;

 private:
  std::vector<std::filesystem::path> folders_;
  std::vector<PluginLibrary> libraries_;
  std::vector<Problem> problems_;
};

// A plug-in of the library that `argument` names by path. Throws Failure (plugin), or the broker's
// Error when the library cannot be loaded.
Choice load_choice(Broker& broker, const PluginArgument& argument);

}  // namespace ctxbroker::sample_host
