// SPDX-License-Identifier: Apache-2.0
#include "graph_plan.hpp"

#include <algorithm>

#include "exit_code.hpp"
#include "files/image.hpp"
#include "suggestion.hpp"

namespace ctxbroker::sample_host {

namespace {

std::vector<std::string> names_of(const std::vector<PlannedPort>& ports) {
  std::vector<std::string> names;
  names.reserve(ports.size());
  for (const PlannedPort& port : ports) names.push_back(port.name);
  return names;
}

// The ports of one direction. `option` says in errors what to give.
class Binder {
 public:
  Binder(std::vector<PlannedPort>& ports, const char* kind, const char* option)
      : ports_(ports), kind_(kind), option_(option), bound_(ports.size()) {}

  void bind(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const std::size_t at = find(text);
      if (bound_[at]) {
        throw Failure(ExitCode::usage, option_ + " \"" + text + "\": the " + kind_ + " \"" +
                                           ports_[at].name + "\" is given twice");
      }
      bound_[at] = true;
      const bool is_named = text.starts_with(ports_[at].name + "=");
      ports_[at].file = is_named ? text.substr(ports_[at].name.size() + 1) : text;
    }
    for (const PlannedPort& port : ports_) {
      if (!port.file.empty()) continue;
      throw Failure(ExitCode::usage, "the " + kind_ + " \"" + port.name +
                                         "\" has no file; give one with " + option_ + " " +
                                         port.name + "=FILE, or in the graph file");
    }
  }

 private:
  std::size_t find(const std::string& text) const {
    const std::string name = text.substr(0, text.find('='));
    for (std::size_t i = 0; i < ports_.size(); ++i) {
      if (name.size() < text.size() && ports_[i].name == name) return i;
    }
    if (ports_.size() == 1) return 0;
    if (ports_.empty()) {
      throw Failure(ExitCode::usage,
                    option_ + " \"" + text + "\": the graph has no " + kind_ + "s; leave it out");
    }
    const std::vector<std::string> names = names_of(ports_);
    const std::string guess = name.size() < text.size() ? nearest(name, names) : "";
    throw Failure(ExitCode::usage,
                  option_ + " \"" + text + "\": " +
                      (name.size() < text.size() ? "the graph has no " + kind_ + " \"" + name + "\""
                                                 : "the " + kind_ + "'s name is missing") +
                      (guess.empty() ? "" : " (did you mean \"" + guess + "\"?)") +
                      "; write NAME=FILE, where NAME is one of: " + join(names));
  }

  std::vector<PlannedPort>& ports_;
  std::string kind_;
  std::string option_;
  std::vector<bool> bound_;
};

}  // namespace

const char* to_string(ResultType type) noexcept {
  switch (type) {
    case ResultType::float32:
      return "float32";
    case ResultType::int32:
      return "int32";
    case ResultType::uint32:
      return "uint32";
    case ResultType::hex:
      break;
  }
  return "hex";
}

namespace {

// Lets the options replace what the file says about the data of a graph without inputs.
void set_generated(GraphPlan& plan, const Options& options) {
  Generated& made = plan.generated;
  if (options.size) {
    made.width = options.size->width;
    made.height = options.size->height;
  }
  if (options.seconds > 0) made.seconds = options.seconds;
  if (options.rate != 0) made.sample_rate = options.rate;
  const bool is_image = options.command == Command::image;
  const bool is_known =
      is_image ? made.width != 0 && made.height != 0 : made.seconds > 0 && made.sample_rate != 0;
  if (plan.inputs.empty() && !is_known) {
    throw Failure(
        ExitCode::usage,
        plan.document + " has no inputs, so it has to be said " +
            (is_image ? "how large the images are: give --size WxH, or \"generate\": "
                        "{\"width\": W, \"height\": H} in the graph file"
                      : "how much sound it makes: give --seconds S and --rate HZ, or \"generate\": "
                        "{\"seconds\": S, \"sample_rate\": HZ} in the graph file"));
  }
  const std::uint64_t pixels = std::uint64_t{made.width} * made.height;
  if (is_image && pixels > image_max_pixels) {
    throw Failure(ExitCode::usage, "images of " + std::to_string(made.width) + " x " +
                                       std::to_string(made.height) +
                                       " have too many pixels; up to " +
                                       std::to_string(image_max_pixels) + " are possible");
  }
  if (!plan.inputs.empty() && (options.size || options.rate != 0)) {
    throw Failure(ExitCode::usage,
                  "--size and --rate are for graphs without inputs; here the input \"" +
                      plan.inputs.front().name + "\" says which size or rate the output has");
  }
}

}  // namespace

GraphPlan plan_row(const std::vector<std::string>& plugins) {
  GraphPlan plan;
  plan.inputs = {{"input"}};
  plan.outputs = {{"output"}};
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
  set_generated(plan, options);
  return plan;
}

void check_members(const GraphPlan& plan, Media media) {
  const auto refuse = [&](const std::string& place, const std::string& why) {
    throw Failure(ExitCode::usage, plan.document + ": $." + place + ": " + why + "; leave it out");
  };
  for (const PlannedPort& port : plan.outputs) {
    for (const std::string& member : port.members) {
      if (member == "file" || (member == "as") == port.is_results()) continue;
      refuse("outputs." + port.name + "." + member,
             port.is_results() ? "\"" + port.file.string() +
                                     "\" gets an analyser's results, which have no " + member
                               : "it is for an analyser's results, and \"" + port.file.string() +
                                     "\" is not a .json file");
    }
  }
  const Generated& made = plan.generated;
  const bool is_image = media == Media::image;
  const auto refuse_generated = [&](bool is_given, const char* member) {
    if (!is_given) return;
    refuse(std::string("generate.") + member,
           is_image ? "images have none, and this is sample_host image"
                    : "recordings have none, and this is sample_host audio");
  };
  refuse_generated(!is_image && made.width != 0, "width");
  refuse_generated(!is_image && made.height != 0, "height");
  refuse_generated(is_image && made.seconds > 0, "seconds");
  refuse_generated(is_image && made.sample_rate != 0, "sample_rate");
}

}  // namespace ctxbroker::sample_host
