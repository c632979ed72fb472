// SPDX-License-Identifier: Apache-2.0
// Graph files (docs/graph.schema.json). Everything is checked before anything is given back.
#include <algorithm>
#include <array>
#include <utility>

#include "exit_code.hpp"
#include "graph_plan.hpp"
#include "json/document.hpp"
#include "suggestion.hpp"

namespace ctxbroker::sample_host {

namespace {

using json::described;
using json::Json;
using json::Location;
using json::member;
using json::quoted;
using json::read_members;

constexpr const char* schema_name = "ctxbroker.graph/1";
constexpr std::uint64_t most_channels = 32;
constexpr int most_seconds = 86400;

struct Reading {
  GraphPlan plan;
  std::filesystem::path folder;  // of the graph file
  // Read before the inputs may be known: to be looked up at the end.
  std::vector<std::pair<std::string, Location>> likes;  // of each output; empty: the first input
};

const std::string& text_of(const Json& value, const Location& location, const char* what) {
  if (value.is_string() && !value.get_ref<const std::string&>().empty()) {
    const std::string& text = value.get_ref<const std::string&>();
    // The system's functions and messages would end there.
    if (text.find('\0') != std::string::npos) {
      location.refuse(quoted(text) + " is not " + what + "; it has a NUL in it");
    }
    return text;
  }
  location.refuse(described(value) + " is not " + what + "; allowed is a text that is not empty");
}

std::string file_name(const Json& value, const Location& location) {
  return text_of(value, location, "the name of a file");
}

void check_name(const std::string& name, const Location& location) {
  const bool good = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
  if (good) return;
  location.refuse(quoted(name) + " is not a name; a name consists of letters, digits, '_' and '-'");
}

// ---- Ports -----------------------------------------------------------------------------------

struct PortReading {
  PlannedPort port;
  const std::filesystem::path& folder;
  std::string like;
  Location like_place;
};

void read_file_name(const Json& value, const Location& location, PortReading& reading) {
  reading.port.file = reading.folder / file_name(value, location);
}

void read_channels(const Json& value, const Location& location, PortReading& reading) {
  const auto channels = json::whole_number(value, most_channels);
  if (!channels || *channels == 0) {
    location.refuse(described(value) + " is not a number of channels; allowed are 1 to " +
                    std::to_string(most_channels));
  }
  reading.port.channels = static_cast<std::uint32_t>(*channels);
}

void read_depth(const Json& value, const Location& location, PortReading& reading) {
  const auto depth = json::whole_number(value, 32);
  if (!depth || (*depth != 8 && *depth != 16 && *depth != 24 && *depth != 32)) {
    location.refuse(described(value) + " is not a depth; allowed are 8, 16, 24 and 32 bits");
  }
  reading.port.depth = static_cast<int>(*depth);
}

void read_like(const Json& value, const Location& location, PortReading& reading) {
  reading.like = text_of(value, location, "the name of an input");
  reading.like_place = location;
}

void read_as(const Json& value, const Location& location, PortReading& reading) {
  for (const ResultType type :
       {ResultType::hex, ResultType::float32, ResultType::int32, ResultType::uint32}) {
    if (value != to_string(type)) continue;
    reading.port.as = type;
    return;
  }
  location.refuse(
      described(value) +
      R"( is no way to write results; allowed are "hex", "float32", "int32", "uint32")");
}

using EndReader = void (*)(const Json&, const Location&, PortReading&);
constexpr std::array<std::pair<const char*, EndReader>, 2> input_members{
    {{"file", read_file_name}, {"channels", read_channels}}};
constexpr std::array<std::pair<const char*, EndReader>, 5> output_members{
    {{"file", read_file_name},
     {"channels", read_channels},
     {"depth", read_depth},
     {"like", read_like},
     {"as", read_as}}};

// An object whose members are named by the document's author.
template <typename Each>
void read_named(const Json& value, const Location& location, const char* what, const Each& each,
                bool may_be_empty = false) {
  if (!value.is_object() || (value.empty() && !may_be_empty)) {
    location.refuse(
        (value.is_object() ? "it is empty" : described(value) + " is not allowed here") +
        std::string("; it needs an object with one member for each ") + what +
        ", and at least one");
  }
  for (const auto& item : value.items()) {
    const Location where = member(location, item.key());
    check_name(item.key(), where);
    each(item.key(), item.value(), where);
  }
}

void read_inputs(const Json& value, const Location& location, Reading& reading) {
  read_named(
      value, location, "input",
      [&](const std::string& name, const Json& input, const Location& where) {
        PortReading port{{name}, reading.folder, {}, {}};
        read_members(input, where, input_members, port);
        reading.plan.inputs.push_back(std::move(port.port));
      },
      true);
}

void read_outputs(const Json& value, const Location& location, Reading& reading) {
  read_named(value, location, "output",
             [&](const std::string& name, const Json& output, const Location& where) {
               PortReading port{{name}, reading.folder, {}, {}};
               read_members(output, where, output_members, port);
               for (const auto& item : output.items()) port.port.members.push_back(item.key());
               reading.plan.outputs.push_back(std::move(port.port));
               reading.likes.emplace_back(std::move(port.like), std::move(port.like_place));
             });
}

// ---- Nodes -----------------------------------------------------------------------------------

struct NodeReading {
  PlannedNode node;
  const std::filesystem::path& folder;
};

void read_plugin(const Json& value, const Location& location, NodeReading& reading) {
  auto settings = std::move(reading.node.plugin.settings);
  const std::string& name = text_of(value, location, "a plug-in's name");
  reading.node.plugin = parse_plugin_name(name, location.prefix());
  reading.node.plugin.settings = std::move(settings);
  std::filesystem::path& library = reading.node.plugin.library;
  if (!library.empty()) library = reading.folder / library;
}

// The numbers of a point or a colour.
std::string numbers_text(const Json& value, const Location& location) {
  std::string text;
  for (const Json& one : value) {
    if (!one.is_number()) {
      location.refuse(described(one) + " stands in the array; only numbers are allowed there");
    }
    text += (text.empty() ? "" : " ") + one.dump();
  }
  return text;
}

// Parameters as --plugin has them, so that both ways take the same values.
std::string parameter_text(const Json& value, const Location& location) {
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  if (value.is_number()) return value.dump();
  if (value.is_array()) return numbers_text(value, location);
  return text_of(value, location,
                 "a parameter's value (a number, a boolean, a text or an array of numbers)");
}

void read_parameters(const Json& value, const Location& location, NodeReading& reading) {
  if (!value.is_object()) {
    location.refuse(described(value) +
                    " is not allowed here; an object whose members are parameters is");
  }
  for (const auto& item : value.items()) {
    reading.node.plugin.settings.emplace_back(
        item.key(), parameter_text(item.value(), member(location, item.key())));
  }
}

using NodeReader = void (*)(const Json&, const Location&, NodeReading&);
constexpr std::array<std::pair<const char*, NodeReader>, 2> node_members{
    {{"plugin", read_plugin}, {"parameters", read_parameters}}};

void read_nodes(const Json& value, const Location& location, Reading& reading) {
  read_named(value, location, "node",
             [&](const std::string& name, const Json& node, const Location& where) {
               NodeReading one{{name, {}, where.prefix()}, reading.folder};
               read_members(node, where, node_members, one);
               if (one.node.plugin.text.empty()) {
                 where.refuse("the member \"plugin\" is missing; it names the node's plug-in");
               }
               reading.plan.nodes.push_back(std::move(one.node));
             });
}

// ---- Edges -----------------------------------------------------------------------------------

void read_from(const Json& value, const Location& location, GraphEdge& edge) {
  edge.from = text_of(value, location, "where an edge begins");
}
void read_to(const Json& value, const Location& location, GraphEdge& edge) {
  edge.to = text_of(value, location, "where an edge ends");
}

using EdgeReader = void (*)(const Json&, const Location&, GraphEdge&);
constexpr std::array<std::pair<const char*, EdgeReader>, 2> edge_members{
    {{"from", read_from}, {"to", read_to}}};

void read_edges(const Json& value, const Location& location, Reading& reading) {
  if (!value.is_array() || value.empty()) {
    location.refuse((value.is_array() ? "it is empty" : described(value) + " is not allowed here") +
                    R"(; it needs an array of edges such as {"from": "plate", "to": "blur"})");
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    const Location where = element(location, i);
    GraphEdge edge;
    read_members(value[i], where, edge_members, edge);
    if (edge.from.empty()) where.refuse("the member \"from\" is missing; it names a source");
    if (edge.to.empty()) where.refuse("the member \"to\" is missing; it names a target");
    reading.plan.edges.push_back(std::move(edge));
  }
}

// ---- The whole -------------------------------------------------------------------------------

void read_automation(const Json& value, const Location& location, Reading& reading) {
  reading.plan.automation = reading.folder / file_name(value, location);
}

// Reads a size or a rate of the data that a graph without inputs makes.
template <std::uint32_t Generated::*member>
void read_count(const Json& value, const Location& location, Generated& generated) {
  const auto count = json::whole_number(value, 1'000'000);
  if (!count || *count == 0) {
    location.refuse(described(value) + " is not allowed here; a whole number from 1 to 1000000 is");
  }
  generated.*member = static_cast<std::uint32_t>(*count);
}

void read_seconds(const Json& value, const Location& location, Generated& generated) {
  const double seconds = value.is_number() ? value.get<double>() : 0;
  if (!(seconds > 0 && seconds <= most_seconds)) {
    location.refuse(described(value) + " is no length; a number above 0 and up to " +
                    std::to_string(most_seconds) + " is");
  }
  generated.seconds = seconds;
}

using GeneratedReader = void (*)(const Json&, const Location&, Generated&);
constexpr std::array<std::pair<const char*, GeneratedReader>, 4> generated_members{
    {{"width", read_count<&Generated::width>},
     {"height", read_count<&Generated::height>},
     {"seconds", read_seconds},
     {"sample_rate", read_count<&Generated::sample_rate>}}};

void read_generate(const Json& value, const Location& location, Reading& reading) {
  read_members(value, location, generated_members, reading.plan.generated);
}

// json::parse_document has looked at it.
void read_schema(const Json&, const Location&, Reading&) {}

using PlanReader = void (*)(const Json&, const Location&, Reading&);
constexpr std::array<std::pair<const char*, PlanReader>, 7> plan_members{
    {{"schema", read_schema},
     {"inputs", read_inputs},
     {"outputs", read_outputs},
     {"nodes", read_nodes},
     {"edges", read_edges},
     {"automation", read_automation},
     {"generate", read_generate}}};
constexpr std::array needed_members{"outputs", "nodes", "edges"};

template <typename Named>
std::vector<std::string> names_of(const std::vector<Named>& all) {
  std::vector<std::string> names;
  names.reserve(all.size());
  for (const Named& one : all) names.push_back(one.name);
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& names) {
  const std::string guess = nearest(name, names);
  return guess.empty() ? "" : " (did you mean " + quoted(guess) + "?)";
}

void check_edges(const GraphPlan& plan, const Location& location) {
  const auto check = [&](const std::string& text, const Location& where,
                         std::vector<std::string> ports, const char* kind) {
    const std::vector<std::string> nodes = names_of(plan.nodes);
    const std::string name = text.substr(0, text.find('.'));
    if (has(nodes, name)) return;
    if (has(ports, name)) {
      if (name.size() == text.size()) return;
      where.refuse(quoted(name) + " is one of the graph's " + kind +
                   ", which have no ports; write it without " + quoted(text.substr(name.size())));
    }
    std::vector<std::string> all = nodes;
    all.insert(all.end(), ports.begin(), ports.end());
    where.refuse("nothing is named " + quoted(name) + did_you_mean(name, all) +
                 "; there are the nodes " + join(nodes) +
                 (ports.empty() ? std::string(", and the graph has no ") + kind
                                : std::string(" and the graph's ") + kind + " " + join(ports)));
  };
  for (std::size_t i = 0; i < plan.edges.size(); ++i) {
    const Location edge = element(location, i);
    check(plan.edges[i].from, member(edge, "from"), names_of(plan.inputs), "inputs");
    check(plan.edges[i].to, member(edge, "to"), names_of(plan.outputs), "outputs");
  }
}

void check_names(const GraphPlan& plan, const Location& root) {
  const std::vector<std::string> nodes = names_of(plan.nodes);
  const auto check = [&](const std::vector<PlannedPort>& ports, const char* section) {
    for (const PlannedPort& port : ports) {
      if (!has(nodes, port.name)) continue;
      member(member(root, section), port.name)
          .refuse("a node has the same name; edges could not tell the two apart");
    }
  };
  check(plan.inputs, "inputs");
  check(plan.outputs, "outputs");
}

void find_likes(Reading& reading) {
  const std::vector<std::string> inputs = names_of(reading.plan.inputs);
  for (std::size_t i = 0; i < reading.likes.size(); ++i) {
    const auto& [name, location] = reading.likes[i];
    if (name.empty()) continue;
    const auto found = std::find(inputs.begin(), inputs.end(), name);
    if (found == inputs.end()) {
      location.refuse("there is no input " + quoted(name) + did_you_mean(name, inputs) +
                      "; there are: " + join(inputs));
    }
    reading.plan.outputs[i].like = static_cast<std::size_t>(found - inputs.begin());
  }
}

GraphPlan parse(std::string_view text, const std::filesystem::path& path) {
  Reading reading;
  reading.plan.document = "graph \"" + path.string() + "\"";
  reading.folder = path.parent_path();
  const Location root{reading.plan.document, "$"};
  const Json json = json::parse_document(text, root, schema_name);
  read_members(json, root, plan_members, reading);
  for (const char* const name : needed_members) json::required(json, root, name);
  check_names(reading.plan, root);
  check_edges(reading.plan, member(root, "edges"));
  if (!reading.plan.inputs.empty() && json.contains("generate")) {
    member(root, "generate").refuse("it is for graphs without inputs, and this one has some");
  }
  find_likes(reading);
  return std::move(reading.plan);
}

}  // namespace

GraphPlan parse_graph(std::string_view text, const std::filesystem::path& path) {
  try {
    return parse(text, path);
  } catch (const json::DocumentError& error) {
    throw Failure(ExitCode::usage, error.what());
  }
}

GraphPlan read_graph(const std::filesystem::path& path) {
  try {
    return parse(json::read_text(path, "graph", limits::graph_file), path);
  } catch (const json::DocumentError& error) {
    throw Failure(ExitCode::usage, error.what());
  }
}

}  // namespace ctxbroker::sample_host
