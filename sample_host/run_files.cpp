// SPDX-License-Identifier: Apache-2.0
#include "run_files.hpp"

#include <sys/stat.h>

#include "ctxbroker/manifest.hpp"
#include "exit_code.hpp"
#include "observe/behind_links.hpp"

namespace ctxbroker::sample_host {

namespace {

[[noreturn]] void refuse_to_replace(const std::string& writer, const std::filesystem::path& file) {
  throw Failure(ExitCode::usage, writer + " would replace \"" + file.string() +
                                     "\", which is read; name another file");
}

[[noreturn]] void refuse_two(const std::string& who, const std::filesystem::path& file) {
  throw Failure(ExitCode::usage,
                who + " are the file \"" + file.string() + "\"; give each a file of its own");
}

}  // namespace

std::vector<std::filesystem::path> files_of(const std::vector<PlannedPort>& ports) {
  std::vector<std::filesystem::path> files;
  files.reserve(ports.size());
  for (const PlannedPort& port : ports) files.push_back(port.file);
  return files;
}

RunFiles::RunFiles(const Options& options, const GraphPlan& plan) : plan_(plan) {
  add("--graph", options.graph, false);
  add("--policy", options.policy, false);
  add("--automation", plan.automation, false);
  for (const std::filesystem::path& preset : options.presets) add("--preset", preset, false);
  for (const PlannedNode& node : plan.nodes) add("--plugin", node.plugin.library, false);
  if (options.report != "-") add("--json", options.report, true);
  add("--trace", options.trace, true);
  add("--save-preset", options.save_preset, true);
}

void RunFiles::check_ports(const std::vector<std::filesystem::path>& inputs,
                           const std::vector<std::filesystem::path>& outputs) {
  for (const std::filesystem::path& input : inputs) check_read(input);
  std::vector<std::string> places;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Place place = place_of(outputs[i]);
    for (const Named& one : named_) {
      if (!is_same(one.place, place)) continue;
      const std::string name = "the output \"" + plan_.outputs[i].name + "\"";
      if (!one.is_written) refuse_to_replace(name, outputs[i]);
      refuse_two(one.name + " and " + name, outputs[i]);
    }
    // Each output becomes a new file. So outputs that are hard links of one file do no harm.
    for (const std::string& other : places) {
      if (!place.path.empty() && other == place.path) refuse_two("two outputs", outputs[i]);
    }
    places.push_back(place.path);
  }
}

void RunFiles::check_plugins(const Session& session) {
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
    const PluginDescription& plugin = session.description(i);
    check_read(plugin.library_path);
    check_read(manifest_path(plugin.library_path));
    for (const ParameterDescription& parameter : plugin.parameters) {
      if (parameter.type != ParameterType::file) continue;
      check_read(session.engine().text(i, parameter.id));
    }
  }
}

void RunFiles::add(const std::string& name, const std::filesystem::path& file, bool is_written) {
  if (file.empty()) return;
  Named added{name, place_of(file), is_written};
  for (const Named& one : named_) {
    if (!is_written || !is_same(one.place, added.place)) continue;
    if (!one.is_written) refuse_to_replace(name, file);
    refuse_two(one.name + " and " + name, file);
  }
  named_.push_back(std::move(added));
}

void RunFiles::check_read(const std::filesystem::path& file) {
  if (file.empty()) return;
  const Place place = place_of(file);
  for (const Named& one : named_) {
    if (one.is_written && is_same(one.place, place)) refuse_to_replace(one.name, file);
  }
}

RunFiles::Place RunFiles::place_of(const std::filesystem::path& file) {
  struct stat target {};
  const bool is_there = ::stat(file.c_str(), &target) == 0;
  if (is_there && !S_ISREG(target.st_mode)) return {};
  std::error_code error;
  const std::filesystem::path behind = detail::behind_links(file, error);
  const std::filesystem::path whole = std::filesystem::absolute(behind, error);
  const std::filesystem::path folder = whole.parent_path();
  if (folder != given_folder_) {
    given_folder_ = folder;
    folder_ = std::filesystem::weakly_canonical(folder, error);
  }
  return {(folder_ / whole.filename()).string(), target.st_dev, target.st_ino};
}

bool RunFiles::is_same(const Place& a, const Place& b) {
  if (a.path.empty() || b.path.empty()) return false;
  return a.path == b.path || (a.node != 0 && a.node == b.node && a.device == b.device);
}

}  // namespace ctxbroker::sample_host
