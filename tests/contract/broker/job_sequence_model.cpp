// SPDX-License-Identifier: Apache-2.0
#include "job_sequence_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace ctxbroker {
namespace {

// One sample of an image, by the plug-in's name. The numbers in the tests are so small that floats
// hold the results exactly.
float computed(const Unit& unit, float value, bool is_first) {
  const std::string plugin = unit.kind->plugin;
  const auto factor = static_cast<float>(unit.factor), offset = static_cast<float>(unit.offset);
  if (plugin == "bypass" || plugin == "ports") return value;
  if (plugin == "scratch") return is_first ? 41 + factor : value;
  return value * factor + offset + (plugin == "bias" ? 100.0F : 0.0F);
}

// A block through a mixer. `history` is its last frame, and afterwards this block's. Returns the
// greatest sample.
float mix(const Unit& unit, const std::vector<float>& first, const std::vector<float>* second,
          const JobInfo& job, std::vector<float>& history, std::vector<float>& out) {
  float peak = 0;
  for (std::size_t at = 0; at < out.size(); ++at) {
    float& late = history[at / job.width];
    out[at] = late;
    peak = std::max(peak, std::abs(late));
    late = first[at] + (second == nullptr ? 0.0F : (*second)[at] * static_cast<float>(unit.factor));
  }
  return peak;
}

// A block that comes so many frames later. `line` keeps the last ones of each channel.
std::vector<float> delayed(const std::vector<float>& block, std::size_t frames, const JobInfo& job,
                           std::vector<float>& line) {
  if (frames == 0) return block;
  line.resize(frames * job.height);
  std::vector<float> out(block.size());
  for (std::size_t c = 0; c < job.height; ++c) {
    std::deque<float> all(line.begin() + static_cast<std::ptrdiff_t>(c * frames),
                          line.begin() + static_cast<std::ptrdiff_t>((c + 1) * frames));
    for (std::size_t i = 0; i < job.width; ++i) {
      all.push_back(block[c * job.width + i]);
      out[c * job.width + i] = all.front();
      all.pop_front();
    }
    std::copy(all.begin(), all.end(), line.begin() + static_cast<std::ptrdiff_t>(c * frames));
  }
  return out;
}

template <typename Thing>
Bytes bytes(const Thing* first, std::size_t count) {
  const auto* const data = reinterpret_cast<const std::byte*>(first);
  return {data, data + count * sizeof(Thing)};
}

std::string port_of(const ModelShape& shape, std::size_t value) {
  return value < shape.inputs ? "in" + std::to_string(value)
                              : "node" + std::to_string(value - shape.inputs);
}

}  // namespace

Expected expect(const ModelShape& shape, const std::vector<std::vector<float>>& inputs,
                const JobInfo& job, const ModelDelays& delays) {
  Expected expected;
  const std::size_t nodes = shape.nodes.size();
  if (!job.discontinuity && delays.channels == job.height) expected.delays = delays;
  expected.delays.channels = job.height;
  expected.delays.lines.resize(2 * nodes + shape.outputs.size());
  std::vector<std::vector<float>> values = inputs;
  std::vector<std::size_t> late(shape.inputs);  // of each value, in frames
  std::vector<float> peaks;
  for (std::size_t n = 0; n < nodes; ++n) {
    const ModelNode& node = shape.nodes[n];
    const Unit& unit = *node.unit;
    if (unit.kind->fate != Fate::succeeds && expected.fate != Fate::fails) {
      expected.fate = unit.kind->fate;
    }
    std::vector<float> out(values[node.first].size());
    expected.histories.push_back(unit.history);
    peaks.push_back(0);
    std::size_t latest = late[node.first];
    if (shape.media == Media::audio) {
      if (node.second) latest = std::max(latest, late[*node.second]);
      const auto aligned = [&](std::size_t value, std::size_t port) {
        return delayed(values[value], latest - late[value], job,
                       expected.delays.lines[2 * n + port]);
      };
      const std::vector<float> first = aligned(node.first, 0);
      std::vector<float> second;
      if (node.second) second = aligned(*node.second, 1);
      std::vector<float>& history = expected.histories.back();
      if (job.discontinuity) history.assign(history.size(), 0);
      peaks.back() = mix(unit, first, node.second ? &second : nullptr, job, history, out);
      ++latest;
    } else {
      const std::vector<float>& first = values[node.first];
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = computed(unit, first[i], i == 0);
    }
    values.push_back(std::move(out));
    late.push_back(latest);
  }
  std::size_t total = 0;
  for (const ModelOutput& output : shape.outputs) {
    if (!output.is_results) total = std::max(total, late[shape.inputs + output.node]);
  }
  for (std::size_t i = 0; i < shape.outputs.size(); ++i) {
    const ModelOutput& output = shape.outputs[i];
    const std::size_t value = shape.inputs + output.node;
    if (!output.is_results) {
      const std::vector<float> aligned =
          delayed(values[value], total - late[value], job, expected.delays.lines[2 * nodes + i]);
      expected.outputs.push_back(bytes(aligned.data(), aligned.size()));
    } else if (shape.media == Media::audio) {
      expected.outputs.push_back(bytes(&peaks[output.node], 1));
    } else {
      expected.outputs.emplace_back(bytes_of(shape, output, job));  // zeros, of a bypass
    }
  }
  return expected;
}

GraphDescription describe(const ModelShape& shape) {
  GraphDescription graph;
  for (std::size_t i = 0; i < shape.inputs; ++i) {
    graph.inputs.push_back({"in" + std::to_string(i), 0, SampleType::float32});
  }
  for (std::size_t i = 0; i < shape.nodes.size(); ++i) {
    const ModelNode& node = shape.nodes[i];
    const std::string name = "node" + std::to_string(i);
    graph.nodes.push_back({name, &node.unit->instance});
    graph.edges.push_back({port_of(shape, node.first), name});
    if (node.second) graph.edges.push_back({port_of(shape, *node.second), name + ".second"});
  }
  for (std::size_t i = 0; i < shape.outputs.size(); ++i) {
    const ModelOutput& output = shape.outputs[i];
    const std::string name = "out" + std::to_string(i), node = "node" + std::to_string(output.node);
    graph.outputs.push_back({name, 0, SampleType::float32});
    const char* const results = shape.nodes[output.node].unit->kind->results;
    graph.edges.push_back({output.is_results ? node + '.' + results : node, name});
  }
  return graph;
}

}  // namespace ctxbroker
