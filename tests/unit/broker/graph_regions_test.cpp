// SPDX-License-Identifier: Apache-2.0
// Which parts of pictures the nodes of a graph get, from what their plug-ins answer.
#include "graph/regions.hpp"

#include <gmock/gmock.h>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ctxbroker/error.hpp"

namespace ctxbroker::detail {

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's name
void PrintTo(const Rectangle& one, std::ostream* stream) {
  *stream << to_text(one);
}

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

MATCHER_P4(IsRegion, x, y, width, height, "") {
  return equal(arg, {x, y, static_cast<std::uint32_t>(width), static_cast<std::uint32_t>(height)});
}

// Grows what is wanted by so many pixels, and the extent too if it is told to.
struct Answer {
  int reach = 0;
  int growth = 0;
};

class GraphRegionsTest : public ::testing::Test, public RegionAnswers {
 protected:
  GraphRegionsTest() {
    graph.inputs = {{"plate"}};
    graph.outputs = {{"result"}};
    job.width = 100;
    job.height = 50;
  }
  PluginDescription& node(const std::string& name, std::size_t inputs = 1) {
    plugins.emplace_back();
    PluginDescription& plugin = plugins.back();
    plugin.short_name = name;
    PortDescription port;
    port.channels = CTXB_CHANNELS(4);
    port.samples = CTXB_SAMPLE_FLOAT;
    for (std::size_t i = 0; i < inputs; ++i) {
      port.id = port.name = std::string(1, static_cast<char>('a' + i));
      plugin.inputs.push_back(port);
    }
    port.id = port.name = "out";
    plugin.outputs.push_back(port);
    graph.nodes.push_back({name, nullptr});
    return plugin;
  }
  void per_pixel(const std::string& name, std::size_t inputs = 1) {
    node(name, inputs).flags = CTXB_PLUGIN_PER_PIXEL;
  }
  void asks(const std::string& name, Answer answer, std::size_t inputs = 1) {
    answers[plugins.size()] = answer;
    node(name, inputs);
  }
  void edge(const char* from, const char* to) { graph.edges.push_back({from, to}); }

  void find() {
    std::vector<const PluginDescription*> all;
    for (const PluginDescription& one : plugins) all.push_back(&one);
    wiring = wire(graph, all, {1000, 1000, 0, false});
    for (const auto& [n, answer] : answers) wiring.nodes[n].asks_regions = true;
    find_regions(wiring, job, *this, regions);
    plan = plan_buffers(wiring, std::vector<Index>(wiring.nodes.size(), 0), {1000, 1000, 0, false});
    lay_out(wiring, plan, regions);
  }
  std::string refusal() {
    try {
      find();
    } catch (const Error& error) {
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return "";
  }
  const Layout& value(const std::string& name) const {
    for (Index v = 0; v < wiring.values.size(); ++v) {
      if (wiring.values[v].name == name) return regions.values[v];
    }
    throw std::out_of_range(name);
  }

  void get_extent(Index n, const PortExtents&, Index, Rectangle& extent) override {
    const int by = answers.at(n).growth;
    extent = {extent.x - by, extent.y - by, extent.width + static_cast<std::uint32_t>(2 * by),
              extent.height + static_cast<std::uint32_t>(2 * by)};
  }
  void get_region(Index n, const PortExtents& inputs, Index, const Rectangle& wanted, Index input,
                  Rectangle& needed) override {
    const Rectangle& whole = (*inputs.extents)[input];
    const int by = answers.at(n).reach;
    const auto right = [](const Rectangle& one) { return one.x + static_cast<int>(one.width); };
    const auto bottom = [](const Rectangle& one) { return one.y + static_cast<int>(one.height); };
    needed.x = std::max(whole.x, wanted.x - by);
    needed.y = std::max(whole.y, wanted.y - by);
    needed.width =
        static_cast<std::uint32_t>(std::min(right(whole), right(wanted) + by) - needed.x);
    needed.height =
        static_cast<std::uint32_t>(std::min(bottom(whole), bottom(wanted) + by) - needed.y);
  }
  Error breach(Index n, const char* function, const std::string& why) override {
    breaches.push_back(function);
    return {ErrorKind::plugin_failed, plugins.at(n).short_name + " " + why};
  }

  std::deque<PluginDescription> plugins;
  std::map<Index, Answer> answers;
  std::vector<std::string> breaches;
  GraphDescription graph;
  JobInfo job;
  Wiring wiring;
  BufferPlan plan;
  JobRegions regions;
};

TEST_F(GraphRegionsTest, RegionGrowsThroughEachNodeBefore) {
  asks("blur", {5, 0});
  per_pixel("point");
  asks("sharp", {2, 0});
  edge("plate", "blur");
  edge("blur", "point");
  edge("point", "sharp");
  edge("sharp", "result");
  job.region = {90, 10, 10, 20};
  find();
  EXPECT_THAT(value("sharp.out").region, IsRegion(90, 10, 10, 20));
  EXPECT_THAT(value("point.out").region, IsRegion(88, 8, 12, 24));
  EXPECT_THAT(value("blur.out").region, IsRegion(88, 8, 12, 24));
  EXPECT_THAT(value("plate").region, IsRegion(83, 3, 17, 34));
  EXPECT_EQ(value("plate").pitch, 17U * 16);
}

TEST_F(GraphRegionsTest, JobWithoutARegionComputesTheFrame) {
  asks("pad", {0, 7});
  edge("plate", "pad");
  edge("pad", "result");
  find();
  EXPECT_THAT(value("pad.out").region, IsRegion(0, 0, 100, 50));
  EXPECT_THAT(regions.extents[wiring.outputs[0]], IsRegion(-7, -7, 114, 64));
}

// A value is as large as all its readers need, and each reader gets its own part of that.
TEST_F(GraphRegionsTest, ReadersGetTheirPartOfASharedValue) {
  asks("blur", {4, 0});
  per_pixel("point");
  node("merge", 2).flags = CTXB_PLUGIN_PER_PIXEL;
  plugins[1].outputs[0].in_place = 0;
  edge("plate", "blur");
  edge("plate", "point");
  edge("blur", "merge.a");
  edge("point", "merge.b");
  edge("merge", "result");
  job.region = {10, 20, 5, 6};
  find();
  EXPECT_THAT(value("plate").region, IsRegion(6, 16, 13, 14));
  EXPECT_THAT(regions.feeds[0][0], IsRegion(6, 16, 13, 14));
  EXPECT_THAT(regions.feeds[1][0], IsRegion(10, 20, 5, 6));
  const Format rgba{Media::image, 4, SampleType::float32, 0};
  const Layout part = part_of(value("plate"), rgba, regions.feeds[1][0]);
  EXPECT_EQ(part.offset, 4U * 13 * 16 + 4 * 16);
  EXPECT_EQ(part.pitch, 13U * 16);
  EXPECT_EQ(bytes_of(part, rgba), 5U * 13 * 16 + 5 * 16);
}

TEST_F(GraphRegionsTest, InPlaceMeansTheSamePixelsOfTheBuffer) {
  asks("blur", {4, 0});
  per_pixel("point", 2);
  plugins[1].outputs[0].in_place = 0;
  edge("plate", "blur");
  edge("plate", "point.a");
  edge("blur", "point.b");
  edge("point", "result");
  job.region = {10, 10, 5, 5};
  find();
  EXPECT_EQ(plan.in_place_of[wiring.outputs[0]], Maybe(0));
  const Layout& point = value("point.out");
  EXPECT_THAT(point.region, IsRegion(10, 10, 5, 5));
  EXPECT_EQ(point.offset, 4U * 13 * 16 + 4 * 16);
  EXPECT_EQ(point.pitch, 13U * 16);
}

// Its buffers may differ in size from job to job.
TEST_F(GraphRegionsTest, APluginThatIsAskedDoesNotWorkInPlace) {
  asks("blur", {4, 0});
  plugins[0].outputs[0].in_place = 0;
  edge("plate", "blur");
  edge("blur", "result");
  find();
  EXPECT_EQ(plan.in_place_of[wiring.outputs[0]], Maybe());
  EXPECT_EQ(plan.buffers.size(), 2U);
}

TEST_F(GraphRegionsTest, NodesWithoutRegionsGetWholePictures) {
  per_pixel("point");
  node("whole");
  asks("blur", {2, 0});
  edge("plate", "point");
  edge("point", "whole");
  edge("whole", "blur");
  edge("blur", "result");
  job.region = {1, 1, 1, 1};
  find();
  EXPECT_THAT(value("whole.out").region, IsRegion(0, 0, 100, 50));
  EXPECT_THAT(value("plate").region, IsRegion(0, 0, 100, 50));
  EXPECT_THAT(value("blur.out").region, IsRegion(1, 1, 1, 1));
}

TEST_F(GraphRegionsTest, ResultsAreAboutWholePictures) {
  PluginDescription& plugin = node("meter");
  plugin.flags = CTXB_PLUGIN_PER_PIXEL;
  PortDescription results;
  results.id = "peak";
  results.result_bytes = 8;
  plugin.outputs.push_back(results);
  graph.outputs.push_back({"peak"});
  edge("plate", "meter");
  edge("meter", "result");
  edge("meter.peak", "peak");
  job.region = {1, 1, 1, 1};
  find();
  EXPECT_THAT(value("plate").region, IsRegion(0, 0, 100, 50));
}

TEST_F(GraphRegionsTest, DifferentExtentsNeedAPluginThatExpectsThem) {
  graph.inputs.push_back({"logo"});
  per_pixel("merge", 2);
  edge("plate", "merge.a");
  edge("logo", "merge.b");
  edge("merge", "result");
  job.extents = {{0, 0, 100, 50}, {2, 2, 10, 10}};
  EXPECT_THAT(refusal(), AllOf(HasSubstr("the inputs of merge differ in extent"),
                               HasSubstr("b has 10 x 10 pixels at (2, 2)")));
}

// A host that says nothing about parts has whole pictures, whatever the plug-in needs of them.
TEST_F(GraphRegionsTest, WithoutARegionInputsAreWhole) {
  asks("crop", {-10, 0});
  edge("plate", "crop");
  edge("crop", "result");
  find();
  EXPECT_THAT(value("plate").region, IsRegion(0, 0, 100, 50));
  EXPECT_THAT(regions.feeds[0][0], IsRegion(10, 10, 80, 30));
  job.region = {0, 0, 100, 50};
  find();
  EXPECT_THAT(value("plate").region, IsRegion(10, 10, 80, 30));
}

TEST_F(GraphRegionsTest, AnswersThatCannotBeAreBreaches) {
  asks("shrinks", {0, -50});
  edge("plate", "shrinks");
  edge("shrinks", "result");
  EXPECT_THAT(refusal(), HasSubstr("shrinks answers that its output out"));
  EXPECT_EQ(breaches, std::vector<std::string>{"get_extent"});
  answers[0] = {-50, 0};
  EXPECT_THAT(refusal(), HasSubstr("shrinks answers that it needs"));
  EXPECT_EQ(breaches.back(), "get_region");
}

TEST_F(GraphRegionsTest, ARegionLargerThanTheGraphIsRefused) {
  asks("blur", {5, 0});
  edge("plate", "blur");
  edge("blur", "result");
  job.region = {20, 20, 10, 10};
  find();
  check_regions(wiring, regions, {20, 20, 0, false});
  EXPECT_THROW(check_regions(wiring, regions, {19, 20, 0, false}), Error);
  EXPECT_THROW(check_regions(wiring, regions, {20, 19, 0, false}), Error);
}

}  // namespace
}  // namespace ctxbroker::detail
