// SPDX-License-Identifier: Apache-2.0
// Graph files, the schema that describes them, and the files at a graph's ports.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "../broker/json_schema.hpp"
#include "exit_code.hpp"
#include "failure_matcher.hpp"
#include "graph_plan.hpp"
#include "support/temp_folder.hpp"

namespace ctxbroker::fixtures {
extern const std::string_view graph_schema, beep, compositing, mixing, running_sample_host;
}

namespace ctxbroker::sample_host::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::usage) << failure.what();
    return failure.what();
  }
  return {};
}

// A sound document, changed by a patch as RFC 7396 has it: null removes a member.
std::string patched(const std::string& patch) {
  json document = json::parse(R"({
    "schema": "ctxbroker.graph/1",
    "inputs": {"a": {"file": "a.png"}, "b": {"file": "b.png", "channels": 1}},
    "outputs": {"o": {"file": "o.png"}},
    "nodes": {"n": {"plugin": "merge"}},
    "edges": [{"from": "a", "to": "n.a"}, {"from": "b", "to": "n.b"}, {"from": "n", "to": "o"}]
  })");
  document.merge_patch(json::parse(patch));
  return document.dump();
}

TEST(GraphFileTest, EveryMemberIsRead) {
  const GraphPlan plan = parse_graph(R"({
    "schema": "ctxbroker.graph/1",
    "inputs": {"plate": {"file": "/in/%d.png"}, "mask": {"channels": 1}},
    "outputs": {"comp": {"file": "out.exr", "channels": 3, "depth": 32, "like": "mask"}, "b": {}},
    "nodes": {"soft": {"plugin": "blur", "parameters": {"radius": 2.5, "n": 3, "on": true,
                                                        "mode": "high", "at": [0.5, 1]}},
              "mine": {"plugin": "./x.so#y"}},
    "edges": [{"from": "plate", "to": "soft.in"}, {"from": "soft", "to": "comp"}]
  })",
                                     "folder/g.json");
  EXPECT_EQ(plan.document, "graph \"folder/g.json\"");
  EXPECT_FALSE(plan.is_row());
  ASSERT_EQ(plan.inputs.size(), 2U);
  EXPECT_EQ(plan.inputs[0].name, "plate") << "in the order of the text";
  EXPECT_EQ(plan.inputs[0].file, "/in/%d.png");
  EXPECT_EQ(plan.inputs[1].channels, 1U);
  EXPECT_TRUE(plan.inputs[1].file.empty());
  ASSERT_EQ(plan.outputs.size(), 2U);
  EXPECT_EQ(plan.outputs[0].file, "folder/out.exr");
  EXPECT_EQ(plan.outputs[0].channels, 3U);
  EXPECT_EQ(plan.outputs[0].depth, 32);
  EXPECT_EQ(plan.outputs[0].like, 1U);
  EXPECT_EQ(plan.outputs[1].like, 0U);
  ASSERT_EQ(plan.nodes.size(), 2U);
  EXPECT_EQ(plan.nodes[0].plugin.plugin, "blur");
  const std::vector<std::pair<std::string, std::string>> settings{
      {"radius", "2.5"}, {"n", "3"}, {"on", "on"}, {"mode", "high"}, {"at", "0.5 1"}};
  EXPECT_EQ(plan.nodes[0].plugin.settings, settings);
  EXPECT_EQ(plan.nodes[0].where, "graph \"folder/g.json\": $.nodes.soft: ");
  EXPECT_EQ(plan.nodes[1].plugin.library, "folder/./x.so");
  EXPECT_EQ(plan.nodes[1].plugin.plugin, "y");
  ASSERT_EQ(plan.edges.size(), 2U);
  EXPECT_EQ(plan.edges[0].from, "plate");
  EXPECT_EQ(plan.edges[0].to, "soft.in");
}

// ---- The reader and the schema agree --------------------------------------------------------

struct Document {
  const char* name;
  std::string patch;
  std::vector<const char*> said;  // parts of the error; empty: accepted
};

std::ostream& operator<<(std::ostream& stream, const Document& document) {
  return stream << document.name;
}

class GraphDocuments : public testing::TestWithParam<Document> {};

bool suits_schema(std::string_view text) {
  const json schema = json::parse(fixtures::graph_schema);
  return is_valid(json::parse(text), schema, schema);
}

TEST_P(GraphDocuments, DocumentIsJudgedAlikeByReaderAndSchema) {
  const Document& document = GetParam();
  const std::string text = patched(document.patch);
  const std::string error = error_of([&] { parse_graph(text, "g.json"); });
  EXPECT_EQ(error.empty(), document.said.empty()) << error;
  if (!error.empty()) {
    EXPECT_THAT(error, HasSubstr("graph \"g.json\": $"));
    EXPECT_THAT(error, Not(HasSubstr("\n")));
  }
  for (const char* part : document.said) EXPECT_THAT(error, HasSubstr(part));
  EXPECT_EQ(suits_schema(text), document.said.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, GraphDocuments,
    testing::Values(
        Document{"sound", "{}", {}},
        Document{"no_files", R"({"inputs": {"a": {"file": null}}})", {}},
        Document{"channels_float", R"({"inputs": {"a": {"channels": 32.0}}})", {}},
        Document{"parameters",
                 R"({"nodes": {"n": {"parameters": {"x": 1, "y": "s", "z": [1, 0.5]}}}})",
                 {}},
        Document{"depth", R"({"outputs": {"o": {"depth": 8, "like": "b"}}})", {}},
        Document{"depth_24", R"({"outputs": {"o": {"depth": 24}}})", {}},
        Document{"automation", R"({"automation": "a.csv"})", {}},
        Document{"automation_array",
                 R"({"automation": ["a"]})",
                 {"$.automation: an array is not the name of a file"}},
        Document{"no_schema", R"({"schema": null})", {"$: ", "\"schema\" is missing"}},
        Document{"other_schema",
                 R"({"schema": "ctxbroker.graph/2"})",
                 {"$.schema: \"ctxbroker.graph/2\" is not what this version reads"}},
        Document{"no_outputs", R"({"outputs": null})", {"\"outputs\" is missing"}},
        Document{"no_nodes", R"({"nodes": null})", {"\"nodes\" is missing"}},
        Document{"no_edges", R"({"edges": null})", {"\"edges\" is missing"}},
        Document{"input_null", R"({"inputs": {"a": 1}})", {"$.inputs.a: the number 1"}},
        Document{"inputs_array", R"({"inputs": []})", {"$.inputs: an array is not allowed here"}},
        Document{
            "generate_zero", R"({"generate": {"width": 0}})", {"$.generate.width: the number 0"}},
        Document{
            "generate_text", R"({"generate": {"seconds": "2"}})", {"$.generate.seconds: \"2\""}},
        Document{
            "generate_more", R"({"generate": {"depth": 2}})", {"$.generate.depth: there is no"}},
        Document{"as_unknown",
                 R"({"outputs": {"o": {"as": "float64"}}})",
                 {"$.outputs.o.as: \"float64\"", "\"hex\", \"float32\""}},
        Document{
            "as_number", R"({"outputs": {"o": {"as": 32}}})", {"$.outputs.o.as: the number 32"}},
        Document{"as", R"({"outputs": {"o": {"as": "uint32"}}})", {}},
        Document{"edges_empty", R"({"edges": []})", {"$.edges: it is empty"}},
        Document{"edges_object", R"({"edges": {"from": "a"}})", {"$.edges: an object"}},
        Document{"edge_text", R"({"edges": ["a"]})", {"$.edges[0]: \"a\" is not allowed here"}},
        Document{"edge_half", R"({"edges": [{"from": "a"}]})", {"$.edges[0]: ", "\"to\""}},
        Document{"edge_more",
                 R"({"edges": [{"from": "a", "to": "n", "gain": 1}]})",
                 {"$.edges[0].gain: there is no such member; allowed are \"from\", \"to\""}},
        Document{"unknown_member", R"({"node": {}})", {"$.node: there is no such member"}},
        Document{"unknown_input_member",
                 R"({"inputs": {"a": {"depth": 8}}})",
                 {"$.inputs.a.depth: there is no such member"}},
        Document{"name_with_dot", R"({"inputs": {"a.b": {}}})", {"\"a.b\" is not a name"}},
        Document{"name_empty", R"({"nodes": {"": {"plugin": "x"}}})", {"\"\" is not a name"}},
        Document{"file_number", R"({"inputs": {"a": {"file": 7}}})", {"the number 7"}},
        Document{"file_empty", R"({"inputs": {"a": {"file": ""}}})", {"$.inputs.a.file: \"\""}},
        Document{"channels_0", R"({"inputs": {"a": {"channels": 0}}})", {"allowed are 1 to 32"}},
        Document{"channels_33", R"({"inputs": {"a": {"channels": 33}}})", {"the number 33"}},
        Document{"depth_12", R"({"outputs": {"o": {"depth": 12}}})", {"the number 12", "8, 16"}},
        Document{"no_plugin",
                 R"({"nodes": {"n": {"plugin": null, "parameters": {}}}})",
                 {"$.nodes.n: the member \"plugin\" is missing"}},
        Document{"plugin_number", R"({"nodes": {"n": {"plugin": 1}}})", {"$.nodes.n.plugin: "}},
        Document{"parameter_object",
                 R"({"nodes": {"n": {"parameters": {"x": {}}}}})",
                 {"$.nodes.n.parameters.x: an object"}},
        Document{"parameter_of_texts",
                 R"({"nodes": {"n": {"parameters": {"x": [1, "2"]}}}})",
                 {"$.nodes.n.parameters.x: \"2\" stands in the array"}},
        Document{"parameters_array",
                 R"({"nodes": {"n": {"parameters": [1]}}})",
                 {"$.nodes.n.parameters: an array is not allowed here"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(GraphFileTest, TheExamplesOfTheDocumentsSuitSchemaAndReader) {
  for (const std::string_view text : {fixtures::beep, fixtures::compositing, fixtures::mixing}) {
    EXPECT_TRUE(suits_schema(text));
    EXPECT_EQ(error_of([&] { parse_graph(text, "example.json"); }), "");
    EXPECT_NE(fixtures::running_sample_host.find(text), std::string_view::npos)
        << "the page shows another graph";
  }
}

// ---- What no schema sees ---------------------------------------------------------------------

struct Mistake {
  const char* patch;
  const char* said;
};

TEST(GraphFileTest, UnknownNamesAreErrorsWithTheirPlace) {
  const std::vector<Mistake> mistakes{
      {R"({"edges": [{"from": "aa", "to": "n.a"}]})",
       "$.edges[0].from: nothing is named \"aa\"; there are the nodes n and the graph's inputs a, "
       "b"},
      {R"({"nodes": {"merge": {"plugin": "merge"}}, "edges": [{"from": "marge", "to": "o"}]})",
       "$.edges[0].from: nothing is named \"marge\" (did you mean \"merge\"?); there are the nodes "
       "merge, n and the graph's inputs a, b"},
      {R"({"edges": [{"from": "a", "to": "n"}, {"from": "n", "to": "a"}]})",
       "$.edges[1].to: nothing is named \"a\"; there are the nodes n and the graph's outputs o"},
      {R"({"edges": [{"from": "a.out", "to": "n"}]})",
       "$.edges[0].from: \"a\" is one of the graph's inputs, which have no ports"},
      {R"({"nodes": {"a": {"plugin": "x"}}})", "$.inputs.a: a node has the same name"},
      {R"({"nodes": {"o": {"plugin": "x"}}})", "$.outputs.o: a node has the same name"},
      {R"({"outputs": {"o": {"like": "c"}}})",
       "$.outputs.o.like: there is no input \"c\"; there are: a, b"},
      {R"({"inputs": null})",
       "nothing is named \"a\"; there are the nodes n, and the graph has no inputs"},
      {R"({"inputs": {"a": null, "b": null}})", "and the graph has no inputs"},
      {R"({"generate": {"width": 3, "height": 2}})",
       "$.generate: it is for graphs without inputs, and this one has some"},
      {R"({"nodes": {"n": {"plugin": "x.so#"}}})",
       "$.nodes.n.plugin: the plug-in's name is missing"}};
  for (const Mistake& mistake : mistakes) {
    const std::string text = patched(mistake.patch);
    EXPECT_THAT(error_of([&] { parse_graph(text, "g.json"); }),
                HasSubstr(std::string("graph \"g.json\": ") +
                          (mistake.said[0] == '$' ? mistake.said : "")));
    EXPECT_THAT(error_of([&] { parse_graph(text, "g.json"); }), HasSubstr(mistake.said));
  }
}

TEST(GraphFileTest, InvalidJsonIsRefusedWithItsPlace) {
  EXPECT_THAT(error_of([] { parse_graph("{", "g.json"); }),
              HasSubstr("graph \"g.json\": is not JSON: parse error at line 1"));
  EXPECT_THAT(error_of([] { parse_graph(R"({"edges": [{}, {"to": 1, "to": 2}]})", "g.json"); }),
              HasSubstr("$.edges[1].to: the member stands here twice"));
  std::string many = "{";
  for (int i = 0; i <= 10000; ++i) many += "\"" + std::to_string(i) + "\": 0, ";
  EXPECT_THAT(error_of([&] { parse_graph(many, "g.json"); }),
              HasSubstr("$: the object has more than 10000 members"));
}

// A message would end there, and a file of another name would be opened.
TEST(GraphFileTest, ATextWithANulIsRefused) {
  const std::string said = error_of(
      [] { parse_graph(patched(R"({"nodes": {"n": {"plugin": "\u0000x"}}})"), "g.json"); });
  EXPECT_THAT(said, HasSubstr("\"\\u0000x\" is not a plug-in's name; it has a NUL in it"));
}

TEST(FailureTest, ControlCharactersAreWrittenAsTheirNumbers) {
  const Failure failure(ExitCode::input, std::string("a\0b\x1b[2J\n\tc\x7f\xc3\xa4; end", 18));
  EXPECT_STREQ(failure.what(), "a\\x00b\\x1b[2J\n\tc\\x7f\xc3\xa4; end");
}

TEST(GraphFileTest, DocumentsThatAskForMuchAreRefusedByTheNameOfTheLimit) {
  const auto error = [](const std::string& text) {
    return error_of([&] { parse_graph(text, "g.json"); });
  };
  constexpr std::uint64_t most_values = 1 << 20;
  EXPECT_THAT(error(std::string(101, '[')), HasSubstr("the limit json_nesting"));
  std::string values = "[";
  for (std::uint64_t i = 0; i <= most_values; ++i) values += "0,";
  EXPECT_THAT(error(values), HasSubstr("the limit json_values"));
  // The square of their number would take minutes.
  std::string objects = "[";
  for (std::uint64_t i = 0; i <= most_values; ++i) objects += "{},";
  EXPECT_THAT(error(objects), HasSubstr("the limit json_values"));
  EXPECT_LT(error("{\"" + std::string(100'000, 'x')).size(), 5000U) << "a message is cut";
}

TEST(GraphFileTest, APipeIsRefusedWithoutWaiting) {
  const TempFolder folder;
  const auto path = folder / "g.json";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { read_graph(path); }), HasSubstr("is not a regular file"));
  EXPECT_THAT(error_of([&] { read_graph("/dev/zero"); }), HasSubstr("is not a regular file"));
}

TEST(GraphFileTest, FilesAreReadAndNamedInErrors) {
  const TempFolder folder;
  const auto path = folder / "g.json";
  EXPECT_THAT(error_of([&] { read_graph(path); }), HasSubstr("there is no such file"));
  EXPECT_THAT(error_of([&] { read_graph(folder.path()); }), HasSubstr("is a folder"));
  write_bytes(path, patched("{}"));
  EXPECT_EQ(read_graph(path).inputs[0].file, folder / "a.png");
  write_bytes(path, std::string((std::size_t{1} << 20) + 1, ' '));
  EXPECT_THAT(error_of([&] { read_graph(path); }), HasSubstr("the limit graph_file"));
}

// ---- Files at the ends -----------------------------------------------------------------------

TEST(BindFilesTest, OptionsReplaceWhatTheGraphFileSays) {
  GraphPlan plan = parse_graph(patched("{}"), "g.json");
  bind_files(plan, {"b=x=1.png"}, {"new.png"});
  EXPECT_EQ(plan.inputs[0].file, "a.png");
  EXPECT_EQ(plan.inputs[1].file, "x=1.png");
  EXPECT_EQ(plan.outputs[0].file, "new.png") << "there is only one output";
  bind_files(plan, {}, {"o=named.png"});
  EXPECT_EQ(plan.outputs[0].file, "named.png");
}

TEST(BindFilesTest, UnknownEndsAreRefusedWithTheKnownOnes) {
  const auto error = [](const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& patch = "{}") {
    return error_of([&] {
      GraphPlan plan = parse_graph(patched(patch), "g.json");
      bind_files(plan, inputs, outputs);
    });
  };
  EXPECT_THAT(error({"c=x.png"}, {}),
              HasSubstr("--input \"c=x.png\": the graph has no input \"c\"; "
                        "write NAME=FILE, where NAME is one of: a, b"));
  EXPECT_THAT(error({"x.png"}, {}), HasSubstr("the input's name is missing"));
  EXPECT_THAT(error({"a=1", "a=2"}, {}), HasSubstr("the input \"a\" is given twice"));
  EXPECT_THAT(error({}, {}, R"({"outputs": {"o": {"file": null}}})"),
              HasSubstr("the output \"o\" has no file; give one with --output o=FILE"));
}

TEST(BindFilesTest, ARowTakesItsFilesAsTheyAre) {
  GraphPlan plan = plan_row({"blur:radius=2", "exposure"});
  EXPECT_TRUE(plan.is_row());
  bind_files(plan, {"input=1.png"}, {"o.png"});
  EXPECT_EQ(plan.inputs[0].file, "input=1.png");
  EXPECT_EQ(plan.outputs[0].file, "o.png");
  ASSERT_EQ(plan.nodes.size(), 2U);
  EXPECT_EQ(plan.nodes[0].plugin.settings.size(), 1U);
  EXPECT_EQ(plan.nodes[0].where, "--plugin \"blur:radius=2\": ");
}

}  // namespace
}  // namespace ctxbroker::sample_host::test
