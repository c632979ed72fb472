// SPDX-License-Identifier: Apache-2.0
// Runs sample plug-ins through the broker, on whichever driver CTXBROKER_DRIVER says.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ctxbroker/broker.hpp"
#include "ctxbroker/graph.hpp"
#include "reference_audio.hpp"
#include "reference_image.hpp"

namespace ctxbroker::test {

using ParameterList = std::vector<std::pair<std::string, ParameterValue>>;

// A sample's file, or that of a plug-in for tests: beside the program's folder, as in the build
// folder, the bundle and an installation. It may not be there.
std::filesystem::path plugin_file(const std::string& name);

// One plug-in of a graph: library's name, which is the plug-in's short name too, and what to set.
struct Stage {
  std::string plugin;
  ParameterList parameters = {};
};

// A broker of its own for each, so that nothing is left over from another test.
class SampleRunner {
 public:
  explicit SampleRunner(bool job_graphs = false)
      : broker_(Broker::open()), job_graphs_(job_graphs) {}

  Broker& broker() { return broker_; }

  PluginInstance create(const Stage& stage, LeaseKind lease = LeaseKind::shared);

  // Creates, activates and graphs the stages.
  class Session;
  Session start(const std::vector<Stage>& stages, const ActivationSizes& sizes,
                LeaseKind lease = LeaseKind::shared);

 private:
  Broker broker_;
  bool job_graphs_;
};

class SampleRunner::Session {
 public:
  Session(Broker& broker, std::vector<PluginInstance> instances, const ActivationSizes& sizes);

  PluginInstance& instance(std::size_t index) { return instances_[index]; }

  // A whole image; RGBA floats.
  std::vector<float> image(const reference::Image& in);

  // The samples from `first` to before `last` of every channel, as one block; planar floats.
  // Consecutive calls are consecutive blocks.
  std::vector<std::vector<float>> block(const reference::Audio& in, std::size_t first,
                                        std::size_t last, bool discontinuity = false);

  // The whole signal in blocks of these lengths, over and over; the last one is shorter.
  std::vector<std::vector<float>> audio(const reference::Audio& in,
                                        const std::vector<std::size_t>& lengths);

 private:
  std::vector<PluginInstance> instances_;
  ActivationSizes sizes_;
  std::unique_ptr<Graph> graph_;
};

// Values that floats can hold exactly, so that reference and plug-in get the same. Deterministic.
// Colours from -0.25 to 4 with flat parts and edges, alpha from 0 to 1 with whole regions of both.
reference::Image test_image(std::uint32_t width, std::uint32_t height, unsigned int seed);
// Noise, a sine, a step and silence, one after the other; every channel is different.
reference::Audio test_audio(std::size_t channels, std::size_t frames, unsigned int seed);

// Each value within `tolerance` of the larger of itself and the reference's peak.
void expect_close(const std::vector<float>& actual, const std::vector<double>& expected,
                  double tolerance = 1e-5);
void expect_close(const std::vector<std::vector<float>>& actual, const reference::Audio& expected,
                  double tolerance = 1e-5);

}  // namespace ctxbroker::test
