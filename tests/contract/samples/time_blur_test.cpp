// SPDX-License-Identifier: Apache-2.0
// Plug-ins that need frames around the job's own one, and what they compute.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ctxbroker/error.hpp"
#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

using reference::Image;
using ::testing::HasSubstr;

constexpr int length = 7;  // frames of the sequence
constexpr ActivationSizes frame_sizes{53, 31};

Image frame_at(int number) {
  return test_image(53, 31, static_cast<unsigned>(std::clamp(number, 0, length - 1)));
}

// The mean of in(-before) to in(after), colours by their alpha.
template <typename In>
Image time_blurred(int before, int after, bool triangle, const In& in) {
  Image out(53, 31), sums(53, 31);
  double all = 0;
  for (int at = -before; at <= after; ++at) {
    const double weight = triangle ? 1 - std::abs(at) / ((at < 0 ? before : after) + 1.0) : 1;
    all += weight;
    const Image frame = in(at);
    for (std::size_t i = 0; i < frame.values.size(); ++i) {
      const double alpha = frame.values[i - i % 4 + 3];
      sums.values[i] += weight * (i % 4 == 3 ? alpha : alpha * frame.values[i]);
    }
  }
  const Image own = in(0);
  for (std::size_t i = 0; i < out.values.size(); ++i) {
    const double alpha = sums.values[i - i % 4 + 3];
    out.values[i] = i % 4 == 3 ? alpha / all : alpha > 0 ? sums.values[i] / alpha : own.values[i];
  }
  return out;
}

// Runs the sequence's frames through a graph with one input, as a host does.
std::vector<float> process_frame(Graph& graph, int number) {
  std::vector<std::vector<float>> frames;
  JobBuffers buffers;
  for (const JobInput& input : graph.job_inputs()) {
    EXPECT_EQ(input.input, 0U);
    const Image image = frame_at(number + input.frame);
    frames.emplace_back(image.values.begin(), image.values.end());
  }
  for (const auto& frame : frames) buffers.inputs.push_back(frame.data());
  std::vector<float> out(frames.at(0).size(), std::nanf(""));
  buffers.outputs = {out.data()};
  JobInfo job;
  job.width = 53;
  job.height = 31;
  job.position = number;
  graph.process(buffers, job);
  return out;
}

std::vector<int> distances(const Graph& graph) {
  std::vector<int> all;
  for (const JobInput& input : graph.job_inputs()) all.push_back(input.frame);
  return all;
}

TEST(TimeBlur, IsTheMeanOfItsFrames) {
  for (const auto& [before, after, shape] :
       {std::tuple{1, 1, 0}, {0, 2, 1}, {3, 0, 1}, {0, 0, 0}, {8, 8, 1}}) {
    SCOPED_TRACE(std::to_string(before) + " before, " + std::to_string(after) + " after");
    SampleRunner runner;
    PluginInstance blur =
        runner.create({"time_blur", {{"before", before}, {"after", after}, {"shape", shape}}});
    blur.activate(frame_sizes);
    Graph graph(runner.broker(), {&blur}, frame_sizes);
    EXPECT_EQ(distances(graph).size(), static_cast<std::size_t>(before + after + 1));
    for (const int number : {0, 3, length - 1}) {
      expect_close(process_frame(graph, number),
                   time_blurred(before, after, shape == 1, [number = number](int at) {
                     return frame_at(number + at);
                   }).values);
    }
  }
}

TEST(TimeBlur, AJobWithoutTheFramesAroundItIsToldWhatIsMissing) {
  SampleRunner runner;
  PluginInstance blur = runner.create({"time_blur", {{"before", 1}, {"after", 1}}});
  blur.activate(frame_sizes);
  Graph graph(runner.broker(), {&blur}, frame_sizes);
  std::vector<float> pixels(frame_at(0).values.size());
  try {
    graph.process({{pixels.data()}, {pixels.data()}}, {});
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("the job has 1 inputs; the graph has 3, with "
                                                   "the frames around the job's own one"));
  }
}

// A plug-in before a time blur works on every frame that the time blur needs, even if the plug-in
// is a time blur itself.
TEST(TimeBlur, NodesBeforeATimeBlurWorkOnEveryFrame) {
  SampleRunner runner;
  PluginInstance exposure = runner.create({"exposure", {{"stops", 1}}});
  PluginInstance near = runner.create({"time_blur", {{"before", 1}, {"after", 0}}});
  PluginInstance blur = runner.create({"blur", {{"radius", 3}}}, LeaseKind::private_own);
  PluginInstance wide = runner.create({"time_blur", {{"before", 0}, {"after", 2}}});
  const std::vector<PluginInstance*> row{&exposure, &near, &blur, &wide};
  for (PluginInstance* const one : row) one->activate(frame_sizes);
  Graph graph(runner.broker(), row, frame_sizes);
  EXPECT_THAT(distances(graph), ::testing::ElementsAre(-1, 0, 1, 2));
  for (const int number : {2, 5}) {
    const auto before = [&](int at) {
      return reference::blur(time_blurred(1, 0, false,
                                          [&](int further) {
                                            return reference::exposure(
                                                frame_at(number + at + further), 1, 1);
                                          }),
                             3);
    };
    expect_close(process_frame(graph, number), time_blurred(0, 2, false, before).values);
  }
}

// The blurred picture and the picture itself, of which one node is needed at one frame only.
TEST(TimeBlur, BranchesMeetAtTheJobsFrame) {
  SampleRunner runner;
  PluginInstance exposure = runner.create({"exposure", {{"stops", -1}}});
  PluginInstance blur = runner.create({"time_blur", {{"before", 2}, {"after", 1}}});
  PluginInstance merge = runner.create({"merge", {{"operation", 1}}});
  for (PluginInstance* const one : {&exposure, &blur, &merge}) one->activate(frame_sizes);
  const GraphDescription description{{{"plate"}},
                                     {{"out"}},
                                     {{"exposure", &exposure}, {"blur", &blur}, {"merge", &merge}},
                                     {{"plate", "exposure"},
                                      {"exposure", "blur"},
                                      {"exposure", "merge.a"},
                                      {"blur", "merge.b"},
                                      {"merge", "out"}}};
  GraphOptions options;
  options.jobs_in_flight = 2;
  Graph graph(runner.broker(), description, frame_sizes, options);
  const auto exposed = [&](int at) { return reference::exposure(frame_at(3 + at), -1, 1); };
  Image expected = time_blurred(2, 1, false, exposed);
  const Image own = exposed(0);
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    double& value = expected.values[i];
    value += own.values[i];
    if (i % 4 == 3) value = std::min(value, 1.0);
  }
  expect_close(process_frame(graph, 3), expected.values);
}

TEST(Frames, FrameRangeBeyondTheLimitIsRefused) {
  SampleRunner runner;
  const PluginLibrary library = runner.broker().load(plugin_file("images"));
  const auto refusal = [&](int first, int last) -> std::string {
    PluginInstance instance = runner.broker().create(library, "asks_frames");
    instance.set_parameter("first", first);
    instance.set_parameter("last", last);
    instance.activate(frame_sizes);
    try {
      Graph graph(runner.broker(), {&instance}, frame_sizes);
      process_frame(graph, 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::plugin_failed);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(-2, 1), "");
  EXPECT_EQ(refusal(-64, 64), "");
  EXPECT_THAT(refusal(1, 2), HasSubstr("asks_frames asks for the frames 1 to 2 of its input in"));
  EXPECT_THAT(refusal(-2, -1), HasSubstr("from 0 to 64"));
  EXPECT_THAT(refusal(-65, 0), HasSubstr("from -64 to 0"));
  EXPECT_THAT(refusal(0, 65), HasSubstr("the frames 0 to 65"));
  EXPECT_THAT(refusal(1000, 0), HasSubstr("the calendar is lost"));
}

// Each doubles what is needed before it.
TEST(Frames, TooManyFramesInAllAreRefused) {
  SampleRunner runner;
  const PluginLibrary library = runner.broker().load(plugin_file("images"));
  std::vector<PluginInstance> instances;
  std::vector<PluginInstance*> row;
  for (int i = 0; i < 6; ++i) {
    instances.push_back(runner.broker().create(library, "asks_frames"));
    instances.back().set_parameter("first", -64);
    instances.back().set_parameter("last", 64);
    instances.back().activate({1, 1});
  }
  for (PluginInstance& one : instances) row.push_back(&one);
  try {
    const Graph graph(runner.broker(), row, {1, 1});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("too many frames"));
  }
}

}  // namespace
}  // namespace ctxbroker::test
