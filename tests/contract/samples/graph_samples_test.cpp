// SPDX-License-Identifier: Apache-2.0
// Graphs of samples: several inputs, branches, and jobs in flight, in every kind of lease.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "ctxbroker/error.hpp"
#include "sample_runner.hpp"

namespace ctxbroker::test {
namespace {

using reference::Image;
using ::testing::HasSubstr;

constexpr ActivationSizes sizes{123, 77, 0, false};

std::vector<float> floats(const Image& image) {
  return {image.values.begin(), image.values.end()};
}

JobInfo job_of(const Image& image, std::int64_t position = 0) {
  JobInfo job;
  job.width = image.width;
  job.height = image.height;
  job.position = position;
  return job;
}

// Returns the picture that merge computes for operation 0, 1 or 2.
Image merged(const Image& a, const Image& b, const std::vector<double>& mask, int operation,
             double amount) {
  Image out(a.width, a.height);
  for (std::size_t pixel = 0; pixel * 4 < a.values.size(); ++pixel) {
    const double* const front = &a.values[pixel * 4];
    const double* const back = &b.values[pixel * 4];
    const double behind = back[3] * (1 - front[3]), alpha = front[3] + behind;
    const double weight = amount * (mask.empty() ? 1 : mask[pixel]);
    for (std::size_t c = 0; c < 4; ++c) {
      double both = 0;
      if (operation == 1) {
        both = c == 3 ? std::min(front[3] + back[3], 1.0) : front[c] + back[c];
      } else if (operation == 2) {
        both = front[c] * back[c];
      } else if (alpha > 0) {
        both = c == 3 ? alpha : (front[c] * front[3] + back[c] * behind) / alpha;
      }
      out.values[pixel * 4 + c] = back[c] + (both - back[c]) * weight;
    }
  }
  return out;
}

class GraphSamplesTest : public ::testing::TestWithParam<LeaseKind> {
 protected:
  PluginInstance& add(const std::string& node, const Stage& stage,
                      const ActivationSizes& its_sizes = sizes) {
    instances.push_back(std::make_unique<PluginInstance>(runner.create(stage, GetParam())));
    instances.back()->activate(its_sizes);
    description.nodes.push_back({node, instances.back().get()});
    return *instances.back();
  }
  void edge(const char* from, const char* to) { description.edges.push_back({from, to}); }

  SampleRunner runner;
  std::vector<std::unique_ptr<PluginInstance>> instances;
  GraphDescription description;
};

TEST_P(GraphSamplesTest, MergesTwoPicturesWithAMask) {
  description.inputs = {{"front"}, {"back"}, {"mask", 1}};
  description.outputs = {{"result"}};
  PluginInstance& merge = add("merge", {"merge", {{"amount", 0.75}}});
  edge("front", "merge.a");
  edge("back", "merge.b");
  edge("mask", "merge.mask");
  edge("merge", "result");
  Graph graph(runner.broker(), description, sizes);
  const Image a = test_image(123, 77, 1), b = test_image(123, 77, 2);
  std::vector<double> mask(std::size_t{123} * 77);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<double>(i % 5) / 4;
  const std::vector<float> front = floats(a), back = floats(b), weights(mask.begin(), mask.end());
  std::vector<float> result(front.size());
  for (int operation = 0; operation < 3; ++operation) {
    SCOPED_TRACE(operation);
    merge.set_parameter("operation", operation);
    graph.process({{front.data(), back.data(), weights.data()}, {result.data()}}, job_of(a));
    expect_close(result, merged(a, b, mask, operation, 0.75).values);
  }
}

// The brighter picture and the blurred one are made from one picture, and merged without a mask.
// The two branches may run at the same time.
TEST_P(GraphSamplesTest, BranchesMeetAgain) {
  description.inputs = {{"plate"}};
  description.outputs = {{"bright"}, {"result"}};
  add("exposure", {"exposure", {{"stops", 1}}});
  add("blur", {"blur", {{"radius", 5}}});
  add("merge", {"merge", {{"operation", 1}}});
  edge("plate", "exposure");
  edge("plate", "blur");
  edge("exposure", "merge.a");
  edge("blur", "merge.b");
  edge("exposure", "bright");
  edge("merge", "result");
  Graph graph(runner.broker(), description, sizes);
  for (unsigned seed = 1; seed < 4; ++seed) {
    const Image in = test_image(123, 77, seed);
    const std::vector<float> plate = floats(in);
    std::vector<float> bright(plate.size()), result(plate.size());
    graph.process({{plate.data()}, {bright.data(), result.data()}}, job_of(in));
    const Image exposed = reference::exposure(in, 1, 1), blurred = reference::blur(in, 5);
    expect_close(bright, exposed.values);
    expect_close(result, merged(exposed, blurred, {}, 1, 1).values);
  }
}

TEST_P(GraphSamplesTest, JobsInFlightGiveTheSameBytes) {
  description.inputs = {{"plate"}};
  description.outputs = {{"result"}};
  add("blur", {"blur", {{"radius", 3}}});
  add("unsharp", {"unsharp"});
  edge("plate", "blur");
  edge("blur", "unsharp");
  edge("unsharp", "result");
  constexpr std::size_t jobs = 9;
  std::vector<std::vector<float>> in, expected(jobs), out(jobs);
  for (std::size_t i = 0; i < jobs; ++i) {
    in.push_back(floats(test_image(123, 77, static_cast<unsigned>(i))));
    expected[i].resize(in[i].size());
    out[i].resize(in[i].size());
  }
  const JobInfo info = job_of(test_image(123, 77, 1));
  {
    Graph one_by_one(runner.broker(), description, sizes);
    for (std::size_t i = 0; i < jobs; ++i) {
      one_by_one.process({{in[i].data()}, {expected[i].data()}}, info);
    }
  }
  for (const std::uint32_t in_flight : {1U, 2U, 4U, 64U}) {
    SCOPED_TRACE(in_flight);
    GraphOptions options;
    options.jobs_in_flight = in_flight;
    Graph graph(runner.broker(), description, sizes, options);
    for (auto& one : out) std::fill(one.begin(), one.end(), -1.0F);
    for (std::size_t i = 0; i < jobs; ++i) {
      EXPECT_EQ(graph.submit({{in[i].data()}, {out[i].data()}}, info), i + 1);
    }
    // More than there may be: the oldest ones were finished.
    EXPECT_EQ(out[0] == expected[0], in_flight < jobs);
    graph.finish(jobs - 2);
    EXPECT_TRUE(graph.is_done(1) && graph.is_done(jobs - 2));
    EXPECT_EQ(out[jobs - 3], expected[jobs - 3]);
    EXPECT_EQ(out[jobs - 1][0], -1.0F) << "nobody asked for it";
    graph.finish(jobs);
    graph.finish(1);
    EXPECT_EQ(out, expected);
    EXPECT_THROW(static_cast<void>(graph.is_done(jobs + 1)), Error);
  }
}

TEST_P(GraphSamplesTest, TheEndOfAGraphFinishesItsJobs) {
  description.inputs = {{"plate"}};
  description.outputs = {{"result"}};
  add("exposure", {"exposure", {{"stops", 2}}});
  edge("plate", "exposure");
  edge("exposure", "result");
  const Image in = test_image(123, 77, 1);
  const std::vector<float> plate = floats(in);
  std::vector<float> result(plate.size());
  Graph(runner.broker(), description, sizes).submit({{plate.data()}, {result.data()}}, job_of(in));
  expect_close(result, reference::exposure(in, 2, 1).values);
}

// A plug-in's uploads wait in staging memory until the device reads them: each job has its own.
TEST_P(GraphSamplesTest, UploadsOfJobsInFlightDoNotMix) {
  constexpr std::uint32_t frames = 512;
  constexpr ActivationSizes audio{frames, 2, 48000, false};
  description.inputs = {{"track"}};
  description.outputs = {{"mix"}};
  PluginInstance& fir = add("fir", {"fir"}, audio);
  edge("track", "fir");
  edge("fir", "mix");
  constexpr std::size_t jobs = 16;
  JobInfo info;
  info.width = frames;
  info.height = 2;
  info.sample_rate = 48000;
  info.discontinuity = true;
  std::vector<float> in(frames * 2);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 37) / 37;
  std::vector<std::vector<float>> out[2];
  for (const std::uint32_t in_flight : {1U, 16U}) {
    GraphOptions options;
    options.jobs_in_flight = in_flight;
    Graph graph(runner.broker(), description, audio, options);
    auto& results = out[in_flight == 1 ? 0 : 1];
    results.assign(jobs, std::vector<float>(in.size()));
    for (std::size_t i = 0; i < jobs; ++i) {
      fir.set_parameter("cutoff", 200.0 * static_cast<double>(i + 1));
      graph.submit({{in.data()}, {results[i].data()}}, info);
    }
    graph.finish(jobs);
  }
  EXPECT_EQ(out[0], out[1]);
  EXPECT_NE(out[0][0], out[0][1]) << "the control: the uploads make a difference";
}

TEST_P(GraphSamplesTest, LossBetweenJobsInFlightKeepsLaterResultsRight) {
  description.inputs = {{"plate"}};
  description.outputs = {{"result"}};
  PluginInstance& exposure = add("exposure", {"exposure", {{"stops", 1}}});
  edge("plate", "exposure");
  edge("exposure", "result");
  GraphOptions options;
  options.jobs_in_flight = 3;
  Graph graph(runner.broker(), description, sizes, options);
  const Image in = test_image(123, 77, 1);
  const std::vector<float> plate = floats(in);
  std::vector<float> results[4];
  for (auto& one : results) one.resize(plate.size());
  const auto submit = [&](std::size_t i) {
    graph.submit({{plate.data()}, {results[i].data()}}, job_of(in));
  };
  submit(0);
  submit(1);
  const LeaseInfo before = exposure.lease();
  runner.broker().force_loss(before.tenant, before.device, "a test");
  submit(2);
  submit(3);
  graph.finish(4);
  EXPECT_NE(exposure.lease().generation, before.generation);
  for (const auto& one : results) expect_close(one, reference::exposure(in, 1, 1).values);
}

TEST_P(GraphSamplesTest, BadEdgesAreRefusedWithTheNamesOfThePorts) {
  description.inputs = {{"plate"}};
  description.outputs = {{"result"}};
  add("merge", {"merge"});
  const auto refusal = [&](std::vector<GraphEdge> edges) -> std::string {
    description.edges = std::move(edges);
    try {
      Graph graph(runner.broker(), description, sizes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return "";
  };
  EXPECT_THAT(refusal({{"plate", "merge"}, {"merge", "result"}}),
              HasSubstr("the input merge.b (Back) has no source"));
  EXPECT_THAT(refusal({{"plate", "merge.a"},
                       {"plate", "merge.b"},
                       {"plate", "merge.mask"},
                       {"merge", "result"}}),
              HasSubstr("merge.mask takes 1 channel of float"));
}

TEST_P(GraphSamplesTest, JobsWithWrongBuffersAreRefused) {
  description.inputs = {{"plate"}};
  description.outputs = {{"result"}};
  add("exposure", {"exposure"});
  edge("plate", "exposure");
  edge("exposure", "result");
  Graph graph(runner.broker(), description, sizes);
  float pixel[4] = {};
  const auto refusal = [&](const JobBuffers& buffers) -> std::string {
    try {
      graph.process(buffers, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(refusal({{}, {pixel}}), HasSubstr("the job has 0 inputs; the graph has 1"));
  EXPECT_THAT(refusal({{pixel}, {}}), HasSubstr("0 outputs"));
  EXPECT_THAT(refusal({{nullptr}, {pixel}}), HasSubstr("an input of the job is null: number 0"));
  EXPECT_EQ(refusal({{pixel}, {pixel}}), "accepted");
}

INSTANTIATE_TEST_SUITE_P(Leases, GraphSamplesTest,
                         ::testing::Values(LeaseKind::shared, LeaseKind::private_own,
                                           LeaseKind::green),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace ctxbroker::test
