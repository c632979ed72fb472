// SPDX-License-Identifier: Apache-2.0
#include "graph_plan.hpp"

#include <algorithm>

#include "exit_code.hpp"
#include "suggestion.hpp"

namespace ctxbroker::sample_host {

namespace {

std::vector<std::string> names_of(const std::vector<PlannedEnd>& ends) {
  std::vector<std::string> names;
  names.reserve(ends.size());
  for (const PlannedEnd& end : ends) names.push_back(end.name);
  return names;
}

// The ends of one direction. `option` says in errors what to give.
class Binder {
 public:
  Binder(std::vector<PlannedEnd>& ends, const char* kind, const char* option)
      : ends_(ends), kind_(kind), option_(option), bound_(ends.size()) {}

  void bind(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const std::size_t at = find(text);
      if (bound_[at]) {
        throw Failure(ExitCode::usage, option_ + " \"" + text + "\": the " + kind_ + " \"" +
                                           ends_[at].name + "\" is given twice");
      }
      bound_[at] = true;
      const bool is_named = text.starts_with(ends_[at].name + "=");
      ends_[at].file = is_named ? text.substr(ends_[at].name.size() + 1) : text;
    }
    for (const PlannedEnd& end : ends_) {
      if (!end.file.empty()) continue;
      throw Failure(ExitCode::usage, "the " + kind_ + " \"" + end.name +
                                         "\" has no file; give one with " + option_ + " " +
                                         end.name + "=FILE, or in the graph file");
    }
  }

 private:
  std::size_t find(const std::string& text) const {
    const std::string name = text.substr(0, text.find('='));
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      if (name.size() < text.size() && ends_[i].name == name) return i;
    }
    if (ends_.size() == 1) return 0;
    const std::vector<std::string> names = names_of(ends_);
    const std::string guess = name.size() < text.size() ? nearest(name, names) : "";
    throw Failure(ExitCode::usage,
                  option_ + " \"" + text + "\": " +
                      (name.size() < text.size() ? "the graph has no " + kind_ + " \"" + name + "\""
                                                 : "the " + kind_ + "'s name is missing") +
                      (guess.empty() ? "" : " (did you mean \"" + guess + "\"?)") +
                      "; write NAME=FILE, where NAME is one of: " + join(names));
  }

  std::vector<PlannedEnd>& ends_;
  std::string kind_;
  std::string option_;
  std::vector<bool> bound_;
};

}  // namespace

GraphPlan plan_row(const std::vector<std::string>& plugins) {
  GraphPlan plan;
  plan.inputs = {{"input", {}, 0, 0, 0}};
  plan.outputs = {{"output", {}, 0, 0, 0}};
  for (const std::string& text : plugins) {
    plan.nodes.push_back({text, parse_plugin_argument(text), "--plugin \"" + text + "\": "});
  }
  return plan;
}

void bind_files(GraphPlan& plan, const std::vector<std::string>& inputs,
                const std::vector<std::string>& outputs) {
  if (plan.is_row()) {
    plan.inputs.front().file = inputs.front();
    plan.outputs.front().file = outputs.front();
    return;
  }
  Binder(plan.inputs, "input", "--input").bind(inputs);
  Binder(plan.outputs, "output", "--output").bind(outputs);
}

GraphPlan make_plan(const Options& options) {
  GraphPlan plan = options.graph.empty() ? plan_row(options.plugins) : read_graph(options.graph);
  bind_files(plan, options.inputs, options.outputs);
  if (!options.automation.empty()) plan.automation = options.automation;
  return plan;
}

}  // namespace ctxbroker::sample_host
