// SPDX-License-Identifier: Apache-2.0
// What can be asked of a scan's result.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "ctxbroker/scan.hpp"
#include "observe/enum_names.hpp"
#include "plugin/description_json.hpp"
#include "scan/scan.hpp"

namespace ctxbroker {
namespace {

using json::Json;

constexpr detail::EnumNames<6> state_names{"enabled", "disabled", "could_not_load",
                                           "crashed", "hung",     "missing"};
constexpr detail::EnumNames<4> source_names{"none", "scan", "cache", "manifest"};

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

// Takes the first part of a version: digits without leading zeros, or what comes up to the next
// point, plus or minus. A '-' stays in front of its part.
std::string_view take_part(std::string_view& rest) noexcept {
  if (!rest.empty() && (rest[0] == '.' || rest[0] == '+')) rest.remove_prefix(1);
  std::size_t end = !rest.empty() && rest[0] == '-' ? 1 : 0;
  const bool number = end == 0 && !rest.empty() && is_digit(rest[0]);
  while (end < rest.size() && rest[end] != '.' && rest[end] != '+' && rest[end] != '-' &&
         (!number || is_digit(rest[end]))) {
    ++end;
  }
  std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end);
  while (number && part.size() > 1 && part[0] == '0') part.remove_prefix(1);
  return part;
}

// "-beta" comes before nothing, nothing before a text, and a text before a number.
int rank(std::string_view part) noexcept {
  if (part.empty()) return 1;
  if (part[0] == '-') return 0;
  return is_digit(part[0]) ? 3 : 2;
}

// Calls `use` with each plug-in of the enabled libraries and its library.
template <typename Use>
void for_each_plugin(const std::vector<ScannedLibrary>& libraries, const Use& use) {
  for (const ScannedLibrary& library : libraries) {
    if (library.state != LibraryState::enabled) continue;
    for (const PluginDescription& plugin : library.plugins) use(plugin, library);
  }
}

}  // namespace

namespace detail {

int compare_versions(std::string_view a, std::string_view b) noexcept {
  while (!a.empty() || !b.empty()) {
    const std::string_view left = take_part(a), right = take_part(b);
    // A version that ends is as high as one that goes on with zeros.
    if (rank(left) != rank(right)) {
      const bool zeros = (left.empty() && right == "0") || (right.empty() && left == "0");
      if (!zeros) return rank(left) - rank(right);
      continue;
    }
    const bool numbers = rank(left) == 3;
    if (numbers && left.size() != right.size()) return left.size() < right.size() ? -1 : 1;
    if (const int order = left.compare(right); order != 0) return order;
  }
  return 0;
}

std::vector<ScanDuplicate> find_duplicates(const std::vector<ScannedLibrary>& libraries) {
  struct Known {
    const PluginDescription* plugin;
    const ScannedLibrary* library;
  };
  std::map<std::string_view, std::vector<Known>> all;
  for_each_plugin(libraries, [&](const PluginDescription& plugin, const ScannedLibrary& library) {
    all[plugin.id].push_back({&plugin, &library});
  });
  std::vector<ScanDuplicate> duplicates;
  for (const auto& [id, known] : all) {
    const Known used =
        *std::max_element(known.begin(), known.end(),
                          [](const Known& a, const Known& b) {  // the first of the highest
                            return compare_versions(a.plugin->version, b.plugin->version) < 0;
                          });
    for (const Known& one : known) {
      if (one.library == used.library) continue;
      const auto& used_path = used.library->path;
      const auto& path = one.library->path;
      const bool same = compare_versions(used.plugin->version, one.plugin->version) == 0;
      duplicates.push_back({std::string(id), used_path, path,
                            "plug-in " + std::string(id) + " is in \"" + used_path.string() +
                                "\" (version " + used.plugin->version +
                                "), which is used because " +
                                (same ? "its folder is searched first" : "its version is higher") +
                                ", and in \"" + path.string() + "\" (version " +
                                one.plugin->version + "); to use the second one, give its path"});
    }
  }
  return duplicates;
}

}  // namespace detail

const char* to_string(LibraryState state) noexcept {
  return detail::name_of(state_names, state);
}

const char* to_string(LibrarySource source) noexcept {
  return detail::name_of(source_names, source);
}

std::vector<const PluginDescription*> ScanResult::plugins() const& {
  std::set<std::pair<std::string_view, std::string_view>> passed_over;
  for (const ScanDuplicate& one : duplicates) {
    passed_over.emplace(one.plugin, one.passed_over.native());
  }
  std::vector<const PluginDescription*> all;
  for_each_plugin(libraries, [&](const PluginDescription& plugin, const ScannedLibrary& library) {
    if (passed_over.count({plugin.id, library.path.native()}) == 0) all.push_back(&plugin);
  });
  return all;
}

const PluginDescription* ScanResult::find(std::string_view name) const& {
  const PluginDescription* found = nullptr;
  bool several = false;
  for (const PluginDescription* plugin : plugins()) {
    if (plugin->id == name) return plugin;
    if (plugin->short_name != name) continue;
    several = found != nullptr;
    found = plugin;
  }
  return several ? nullptr : found;
}

std::string to_json(const ScanResult& result) {
  Json json{{"schema", "ctxbroker.scan/1"}, {"complete", result.complete}};
  for (const char* name : {"folders", "libraries", "duplicates", "notes"}) {
    json[name] = Json::array();
  }
  for (const auto& folder : result.folders) json["folders"].push_back(folder.string());
  for (const ScannedLibrary& library : result.libraries) {
    json["libraries"].push_back({{"path", library.path.string()},
                                 {"state", to_string(library.state)},
                                 {"source", to_string(library.source)},
                                 {"reason", library.reason},
                                 {"strikes", library.strikes},
                                 {"plugins", detail::to_json(library.plugins)}});
  }
  for (const ScanDuplicate& one : result.duplicates) {
    json["duplicates"].push_back({{"plugin", one.plugin},
                                  {"used", one.used.string()},
                                  {"passed_over", one.passed_over.string()},
                                  {"text", one.text}});
  }
  for (const std::string& note : result.notes) json["notes"].push_back(note);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace ctxbroker
