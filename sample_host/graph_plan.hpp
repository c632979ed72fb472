// SPDX-License-Identifier: Apache-2.0
// The plan of a run: the plug-ins, the graph's ports and the files at them. It comes from a graph
// file or from a row of --plugin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ctxbroker/graph.hpp"
#include "options.hpp"
#include "plugin_argument.hpp"

namespace ctxbroker::sample_host {

// The form of the results in a file: the bytes as they are, or numbers.
enum class ResultType { hex, float32, int32, uint32 };
const char* to_string(ResultType type) noexcept;  // "float32"

// An input or an output of the graph.
struct PlannedPort {
  std::string name;                 // "plate"
  std::filesystem::path file = {};  // empty until it is bound
  std::uint32_t channels = 0;       // 0: as usual
  int depth = 0;                    // outputs: bits per sample; 0: as the input's
  std::size_t like = 0;             // outputs: the input whose kind of file and metadata it gets
  ResultType as = ResultType::hex;  // outputs of results
  std::vector<std::string> members = {};  // outputs: what the graph file says of it

  // An output whose file is JSON gets what an analyser gives.
  bool is_results() const { return file.extension() == ".json"; }
};

// The size of the image or sound that a graph without inputs makes. 0: not set.
struct Generated {
  std::uint32_t width = 0, height = 0;  // images: pixels
  double seconds = 0;                   // audio
  std::uint32_t sample_rate = 0;        // audio: Hz
};

struct PlannedNode {
  std::string name;  // "blur"
  PluginArgument plugin;
  std::string where;  // how a message about it begins: "--plugin \"blur\": "
};

struct GraphPlan {
  std::string document;                      // "graph \"comp.json\""; empty for a row
  std::vector<PlannedPort> inputs, outputs;  // no inputs: everything is generated
  Generated generated;                       // then
  std::vector<PlannedNode> nodes;            // at least one; of a row, in its order
  std::vector<GraphEdge> edges;              // none in a row
  std::filesystem::path automation;          // changes of parameters over time; empty: none

  bool is_row() const noexcept { return document.empty(); }
};

// A graph from its JSON text. `path` is its file: for errors, and because names of files in it
// begin at its folder. What plug-ins have is not looked at. Throws Failure (usage).
GraphPlan parse_graph(std::string_view text, const std::filesystem::path& path);
// Throws Failure (usage).
GraphPlan read_graph(const std::filesystem::path& path);

// Plug-ins one after the other, as --plugin names them, between an input and an output. Throws
// Failure (usage).
GraphPlan plan_row(const std::vector<std::string>& plugins);

// Gives the ports their files. A row has one text of each kind, its FILE. With a graph file, each
// is NAME=FILE, or FILE if there is only one port, and replaces what the graph file says. Throws
// Failure (usage) for a name that is not a port, and a port that is named twice or has no file.
void bind_files(GraphPlan& plan, const std::vector<std::string>& inputs,
                const std::vector<std::string>& outputs);

// The graph file or the row that the options name, with its files, and for a graph without inputs
// with the size or the length that there has to be. Throws Failure (usage).
GraphPlan make_plan(const Options& options);

// Throws Failure (usage) for a member of the graph file that has no meaning for the media or for
// the type of the output's file.
void check_members(const GraphPlan& plan, Media media);

}  // namespace ctxbroker::sample_host
