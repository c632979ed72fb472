// SPDX-License-Identifier: Apache-2.0
// What graphs mean, and what is refused with the names of its ports; which values share a buffer.
#include "graph/wiring.hpp"

#include <gmock/gmock.h>

#include <deque>
#include <string>
#include <vector>

#include "ctxbroker/error.hpp"
#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ActivationSizes sizes{64, 32, 0, false};
constexpr std::uint32_t rgba = CTXB_CHANNELS(4);

PortDescription port(const char* id, std::uint32_t channels = rgba, bool optional = false) {
  PortDescription made;
  made.id = id;
  made.name = id;
  made.optional = optional;
  made.channels = channels;
  made.samples = CTXB_SAMPLE_FLOAT;
  return made;
}

PortDescription results(const char* id, std::uint32_t bytes) {
  PortDescription made;
  made.id = made.name = id;
  made.result_bytes = bytes;
  return made;
}

// Nodes, and what flows between them; every node's instance is another descriptor.
class GraphWiringTest : public ::testing::Test {
 public:  // for the mistakes
  GraphWiringTest() {
    graph.inputs = {{"plate"}};
    graph.outputs = {{"result"}};
  }
  PluginDescription& node(const std::string& name, std::vector<PortDescription> inputs,
                          std::vector<PortDescription> outputs) {
    plugins.emplace_back();
    plugins.back().inputs = std::move(inputs);
    plugins.back().outputs = std::move(outputs);
    graph.nodes.push_back({name, nullptr});
    return plugins.back();
  }
  void filter(const std::string& name) { node(name, {port("in")}, {port("out")}); }
  void merge(const std::string& name) {
    node(name, {port("a"), port("b"), port("mask", CTXB_CHANNELS(1), true)}, {port("out")});
  }
  void edge(const char* from, const char* to) { graph.edges.push_back({from, to}); }

  Wiring wired() const {
    std::vector<const PluginDescription*> all;
    for (const PluginDescription& one : plugins) all.push_back(&one);
    return wire(graph, all, sizes, frames);
  }
  std::string refusal() const {
    try {
      wired();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return "";
  }
  static BufferPlan plan(const Wiring& wiring) {
    return plan_buffers(wiring, std::vector<Index>(wiring.nodes.size(), 0), sizes);
  }

  std::deque<PluginDescription> plugins;
  GraphDescription graph;
  std::vector<FrameRanges> frames;
};

TEST_F(GraphWiringTest, RowOfAnyLengthNeedsTwoBuffers) {
  for (const char* name : {"one", "two", "three", "four"}) filter(name);
  edge("plate", "one");
  edge("one", "two.in");
  edge("two.out", "three");
  edge("three", "four");
  edge("four", "result");
  const Wiring wiring = wired();
  EXPECT_THAT(wiring.order, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(wiring.nodes[2].waits_for, ElementsAre(1));
  EXPECT_TRUE(wiring.nodes[3].comes_after[0]);
  const BufferPlan buffers = plan(wiring);
  EXPECT_EQ(buffers.buffers.size(), 2U);
  EXPECT_THAT(buffers.of_value, ElementsAre(0, 1, 0, 1, 0));
}

// one -> mean (frames -1 to 1) -> both.a, and plate -> both.b (frames 0 to 2) -> result
TEST_F(GraphWiringTest, NodesAreThereForEachFrameThatIsNeeded) {
  filter("one");
  filter("mean");
  merge("both");
  edge("plate", "one");
  edge("one", "mean");
  edge("mean", "both.a");
  edge("plate", "both.b");
  edge("both", "result");
  frames = {{{}}, {{-1, 1}}, {{}, {0, 2}, {-3, 3}}};  // the mask is not connected
  const Wiring wiring = wired();
  std::vector<std::string> inputs, nodes;
  for (const Value& value : wiring.values) {
    if (!value.node) inputs.push_back(value.name);
  }
  for (const Index n : wiring.order) nodes.push_back(wiring.nodes[n].name);
  EXPECT_THAT(inputs,
              ElementsAre("plate (frame -1)", "plate", "plate (frame +1)", "plate (frame +2)"));
  EXPECT_THAT(nodes, ElementsAre("one", "one (frame -1)", "one (frame +1)", "mean", "both"));
  const WiredNode& one = wiring.nodes[1];
  EXPECT_EQ(one.frame, -1);
  EXPECT_EQ(one.origin, 0U);
  EXPECT_TRUE(one.is_repeated);
  const WiredNode& mean = wiring.nodes[3];
  EXPECT_FALSE(mean.is_repeated);
  EXPECT_THAT(mean.waits_for, ElementsAre(1, 0, 2));
  EXPECT_THAT(mean.inputs, ElementsAre(wiring.nodes[1].outputs[0], wiring.nodes[0].outputs[0],
                                       wiring.nodes[2].outputs[0]));
  const WiredNode& both = wiring.nodes[4];
  EXPECT_THAT(both.inputs, ElementsAre(mean.outputs[0], 1, 2, 3, Maybe()));
  EXPECT_EQ(both.feeds[3].frame, 2);
  EXPECT_EQ(both.feeds[4].port, 2U);
  EXPECT_TRUE(both.comes_after[0]);
  EXPECT_THAT(wiring.values[1].readers, ElementsAre(0, 4));
  EXPECT_THAT(wiring.outputs, ElementsAre(both.outputs[0]));
  EXPECT_TRUE(wiring.values[both.outputs[0]].goes_to_host);
}

TEST_F(GraphWiringTest, NodesThatWorkInPlaceNeedOneBuffer) {
  for (const char* name : {"one", "two"}) {
    node(name, {port("in")}, {port("out")}).outputs[0].in_place = 0;
  }
  edge("plate", "one");
  edge("one", "two");
  edge("two", "result");
  EXPECT_EQ(plan(wired()).buffers.size(), 1U);
}

TEST_F(GraphWiringTest, NobodyWorksInPlaceOnWhatAnotherReads) {
  node("one", {port("in")}, {port("out")}).outputs[0].in_place = 0;
  filter("two");
  merge("both");
  edge("plate", "one");
  edge("plate", "two");
  edge("one", "both.a");
  edge("two", "both.b");
  edge("both", "result");
  const Wiring wiring = wired();
  const BufferPlan buffers = plan(wiring);
  EXPECT_NE(buffers.of_value[0], buffers.of_value[1]);
  // Nor does a branch get a buffer that the branch beside it may still read.
  EXPECT_NE(buffers.of_value[1], buffers.of_value[2]);
  EXPECT_EQ(buffers.of_value[3], buffers.of_value[0]) << "both branches have ended";
  EXPECT_EQ(buffers.buffers.size(), 3U);
}

TEST_F(GraphWiringTest, TheOrderOfTheDescriptionDoesNotMatter) {
  filter("last");
  filter("first");
  edge("last", "result");
  edge("first", "last");
  edge("plate", "first");
  EXPECT_THAT(wired().order, ElementsAre(1, 0));
}

TEST_F(GraphWiringTest, ValuesInOtherMemoryAreCopied) {
  filter("one");
  filter("two");
  edge("plate", "one");
  edge("one", "two");
  edge("two", "result");
  const BufferPlan buffers = plan_buffers(wired(), {0, 1}, sizes);
  ASSERT_EQ(buffers.buffers.size(), 4U);
  ASSERT_TRUE(buffers.copies[1][0].has_value());
  EXPECT_EQ(buffers.buffers[*buffers.copies[1][0]].home, 1U);
  EXPECT_FALSE(buffers.copies[0][0].has_value());
}

TEST_F(GraphWiringTest, BuffersOfTheHostsOutputsAreKeptUntilTheEnd) {
  filter("one");
  filter("two");
  filter("three");
  graph.outputs = {{"early"}, {"late"}};
  edge("plate", "one");
  edge("one", "two");
  edge("one", "early");
  edge("two", "three");
  edge("three", "late");
  const BufferPlan buffers = plan(wired());
  EXPECT_NE(buffers.of_value[1], buffers.of_value[3]);
  EXPECT_NE(buffers.of_value[1], buffers.of_value[2]);
}

TEST_F(GraphWiringTest, GeneratorAndAnalyserAreWired) {
  graph.inputs.clear();
  graph.outputs = {{"bins"}};
  node("tone", {}, {port("out")});
  node("spectrum", {port("in")}, {results("bins", 100)});
  edge("tone", "spectrum");
  edge("spectrum.bins", "bins");
  const Wiring wiring = wired();
  EXPECT_THAT(wiring.order, ElementsAre(0, 1));
  EXPECT_EQ(bytes_of(wiring.values[1].format, 64, 32), 100U);
}

TEST_F(GraphWiringTest, AnOutputHasTheFormatOfTheFirstInputIfItMay) {
  graph.inputs = {{"plate", 3, SampleType::float16}};
  for (const char* name : {"one", "two"}) {
    PluginDescription& made = node(name, {port("in", 0xF)}, {port("out", 0xF)});
    made.inputs[0].samples = made.outputs[0].samples = CTXB_SAMPLE_FLOAT | CTXB_SAMPLE_HALF;
  }
  graph.outputs = {{"result", 4}};
  edge("plate", "one");
  edge("one", "two");
  edge("two", "result");
  const Wiring wiring = wired();
  EXPECT_EQ(wiring.values[1].format.channels, 3U);
  EXPECT_EQ(wiring.values[1].format.samples, SampleType::float16);
  EXPECT_EQ(wiring.values[2].format.channels, 4U) << "the host wants that";
  EXPECT_EQ(wiring.values[2].format.samples, SampleType::float32);
  EXPECT_EQ(bytes_of(wiring.values[1].format, 64, 32), 64U * 32 * 3 * 2);
}

TEST_F(GraphWiringTest, AudioHasTheJobsChannelsWherePortsTakeThem) {
  for (const char* name : {"any", "pair"}) {
    const std::uint32_t channels = name[0] == 'a' ? CTXB_CHANNELS_ANY : 3;
    node(name, {port("in", channels)}, {port("out", channels)}).media = Media::audio;
  }
  edge("plate", "any");
  edge("any", "pair");
  edge("pair", "result");
  std::vector<const PluginDescription*> all{&plugins[0], &plugins[1]};
  const Wiring wiring = wire(graph, all, {512, 2, 48000, false});
  EXPECT_EQ(wiring.values[2].format.channels, 0U);
  EXPECT_EQ(wiring.job_channels, 3U) << "mono and stereo";
  EXPECT_THROW(wire(graph, all, {512, 6, 48000, false}), Error);
}

TEST_F(GraphWiringTest, ASideChainDoesNotDecideTheFormat) {
  graph.inputs = {{"key", 1}, {"plate"}};
  PluginDescription& plugin =
      node("ducker", {port("key", CTXB_CHANNELS_ANY), port("in", CTXB_CHANNELS_ANY)},
           {port("out", CTXB_CHANNELS_ANY)});
  plugin.media = Media::audio;
  filter("next");
  plugins[1].media = Media::audio;
  plugins[1].inputs[0].channels = plugins[1].outputs[0].channels = CTXB_CHANNELS_ANY;
  edge("key", "ducker.key");
  edge("plate", "ducker.in");
  edge("ducker", "next");
  edge("next", "result");
  const std::vector<const PluginDescription*> all{&plugins[0], &plugins[1]};
  EXPECT_EQ(wire(graph, all, {512, 2, 48000, false}).values[2].format.channels, 1U) << "no key yet";
  plugins[0].inputs[0].side_chain = true;
  EXPECT_EQ(wire(graph, all, {512, 2, 48000, false}).values[2].format.channels, 0U);
}

TEST_F(GraphWiringTest, CyclesAreNamed) {
  merge("one");
  filter("two");
  filter("three");
  edge("plate", "one.a");
  edge("three", "one.b");
  edge("one", "two");
  edge("two", "three");
  edge("three", "result");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("one -> two -> three -> one"), HasSubstr("no cycles")));
}

TEST_F(GraphWiringTest, NodeThatReadsItselfIsRefused) {
  merge("one");
  edge("plate", "one.a");
  edge("one", "one.b");
  edge("one", "result");
  EXPECT_THAT(refusal(), HasSubstr("one -> one"));
}

TEST_F(GraphWiringTest, FormatsThatDoNotMeetAreNamedWithTheirPorts) {
  merge("one");
  filter("two");
  edge("plate", "one.a");
  edge("plate", "one.b");
  edge("plate", "two");
  edge("two", "one.mask");
  edge("one", "result");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("two.out gives 4 channels of float"),
                               HasSubstr("one.mask takes 1 channel of float")));
}

TEST_F(GraphWiringTest, EndThatAPortDoesNotTakeIsRefused) {
  graph.inputs = {{"plate", 1}};
  filter("one");
  edge("plate", "one");
  edge("one", "result");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("\"plate\" has 1 channel"), HasSubstr("one.in takes 4")));
}

TEST_F(GraphWiringTest, MistakesInADescriptionAreRefusedByName) {
  struct Mistake {
    const char* what;
    void (*make)(GraphWiringTest&);
    const char* says;
  };
  const Mistake mistakes[] = {
      {"no_node", [](GraphWiringTest& t) { t.graph.nodes.clear(), t.plugins.clear(); }, "no node"},
      {"no_output", [](GraphWiringTest& t) { t.graph.outputs.clear(); }, "no output"},
      {"empty_name", [](GraphWiringTest& t) { t.graph.nodes[0].name = ""; }, "is empty"},
      {"dotted_name", [](GraphWiringTest& t) { t.graph.nodes[0].name = "a.b"; }, "has a dot"},
      {"same_names", [](GraphWiringTest& t) { t.graph.inputs[0].name = "one"; }, "two parts"},
      {"unknown_source", [](GraphWiringTest& t) { t.graph.edges[0].from = "pla"; },
       "nothing is named \"pla\"; there are the nodes one and the graph's inputs plate"},
      {"unknown_port", [](GraphWiringTest& t) { t.graph.edges[0].to = "one.mask"; },
       "no such input; it has: in"},
      {"no_source", [](GraphWiringTest& t) { t.graph.edges.erase(t.graph.edges.begin()); },
       "the input one.in (in) has no source"},
      {"output_without_source", [](GraphWiringTest& t) { t.graph.edges.pop_back(); },
       "the output \"result\" has no source"},
      {"two_sources", [](GraphWiringTest& t) { t.edge("plate", "one"); }, "has a source already"},
      {"two_results", [](GraphWiringTest& t) { t.edge("one", "result"); }, "has a source already"},
      {"past_all", [](GraphWiringTest& t) { t.graph.edges[1].from = "plate"; }, "past all nodes"},
      {"unused_input", [](GraphWiringTest& t) { t.graph.inputs.push_back({"mask"}); },
       "no edge begins at the input \"mask\""},
      {"results_in",
       [](GraphWiringTest& t) {
         t.node("two", {}, {results("bins", 4)});
         t.graph.edges[0].from = "two";
       },
       "results go to the host"},
      {"media", [](GraphWiringTest& t) { t.node("two", {}, {port("out")}).media = Media::audio; },
       "two processes audio, and one image"},
      {"half_audio",
       [](GraphWiringTest& t) {
         t.plugins[0].media = Media::audio;
         t.graph.inputs[0].samples = SampleType::float16;
       },
       "samples that its media does not have"},
      {"many_channels", [](GraphWiringTest& t) { t.graph.inputs[0].channels = 33; },
       "more than 32"},
  };
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.what);
    plugins.clear();
    graph = {{{"plate"}}, {{"result"}}, {}, {}};
    filter("one");
    edge("plate", "one");
    edge("one", "result");
    EXPECT_NO_THROW(wired()) << "the control";
    mistake.make(*this);
    EXPECT_THAT(refusal(), HasSubstr(mistake.says));
  }
}

}  // namespace
}  // namespace ctxbroker::detail
