// SPDX-License-Identifier: Apache-2.0
// What graphs of test plug-ins have to compute, in plain C++. job_sequence_test.cpp drives graphs
// and this model side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ctxbroker/graph.hpp"

namespace ctxbroker {

// The outcome of a job of a plug-in or of a graph.
enum class Fate { succeeds, fails, either };

// A plug-in of the fixtures.
struct PluginKind {
  const char* library;
  const char* plugin;
  Media media = Media::image;
  Fate fate = Fate::succeeds;
  bool counts_calls = false;      // what it does depends on how often process was called
  const char* results = nullptr;  // its output of results; it has a second input then
};

// An instance, and all that the model knows about it.
struct Unit {
  const PluginKind* kind;
  PluginInstance instance;
  double factor = 1, offset = 0;  // its parameters, or the gain and nothing
  bool is_active = false;
  ActivationSizes sizes{};
  unsigned activation = 0;          // counts the calls of activate
  unsigned generation = 0;          // counts those, and the renewals
  bool is_lost = false;             // its context was given up and not renewed
  std::vector<float> history{};     // of a mixer: the last frame of each channel
  bool is_history_certain = false;  // else the next job has to be a discontinuity
};
using UnitPointer = std::shared_ptr<Unit>;

// A node, by the values that it reads: the graph's inputs come first, then each node's first
// output.
struct ModelNode {
  UnitPointer unit;
  std::size_t first = 0;
  std::optional<std::size_t> second{};
  unsigned activation = 0, generation = 0;  // the unit's, as the graph knows it
};

// An output of the graph: the first output of a node, or its results.
struct ModelOutput {
  std::size_t node = 0;
  bool is_results = false;
};

struct ModelShape {
  Media media = Media::image;
  std::size_t inputs = 0;
  std::vector<ModelNode> nodes;  // none reads a later one
  std::vector<ModelOutput> outputs;
};

// The delay lines with which a graph of audio aligns its branches: the last frames of each channel,
// for the two inputs of each node and for each output. An empty line is silence.
struct ModelDelays {
  std::uint32_t channels = 0;
  std::vector<std::vector<float>> lines{};
};

using Bytes = std::vector<std::byte>;

// The result that a job has to have. `outputs` are the outputs of a job that succeeds.
struct Expected {
  Fate fate = Fate::succeeds;
  std::vector<Bytes> outputs;
  std::vector<std::vector<float>> histories;  // of each node's unit, after the job
  ModelDelays delays;                         // after the job
};

// Bytes of one of the graph's ports in a job.
inline std::size_t bytes_of(const ModelShape& shape, const JobInfo& job) {
  const std::size_t channels = shape.media == Media::image ? 4 : 1;
  return std::size_t{job.width} * job.height * channels * sizeof(float);
}
inline std::size_t bytes_of(const ModelShape& shape, const ModelOutput& output,
                            const JobInfo& job) {
  if (!output.is_results) return bytes_of(shape, job);
  return shape.media == Media::image ? 8 : 4;
}

Expected expect(const ModelShape& shape, const std::vector<std::vector<float>>& inputs,
                const JobInfo& job, const ModelDelays& delays);

// The same as a graph description: inputs are "in0", ..., nodes "node0", ..., outputs "out0", ...
GraphDescription describe(const ModelShape& shape);

}  // namespace ctxbroker
