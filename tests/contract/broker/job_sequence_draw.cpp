// SPDX-License-Identifier: Apache-2.0
#include "job_sequence_draw.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace ctxbroker {
namespace {

constexpr PluginKind kinds[] = {
    {"behaviours", "affine"},
    {"behaviours_twin", "affine"},
    {"behaviours_third", "affine"},
    {"behaviours", "bias"},
    {"behaviours_twin", "scratch"},
    {"behaviours", "scratch"},
    {"behaviours_third", "bypass"},
    {"behaviours", "again_once", Media::image, Fate::succeeds, true},
    {"behaviours_twin", "every_second_fails", Media::image, Fate::either, true},
    {"behaviours", "process_fails", Media::image, Fate::fails},
    {"behaviours_third", "process_throws", Media::image, Fate::fails},
    {"behaviours", "always_again", Media::image, Fate::fails, true},
    {"behaviours_twin", "unknown_soft", Media::image, Fate::fails},
    {"ports", "ports", Media::image, Fate::succeeds, false, "found"},
    {"ports", "ports", Media::image, Fate::succeeds, false, "found"},
    {"mixer", "mixer", Media::audio, Fate::succeeds, false, "peak"},
    {"mixer", "mixer", Media::audio, Fate::succeeds, false, "peak"},
    {"mixer_twin", "mixer", Media::audio, Fate::succeeds, false, "peak"},
    {"mixer_twin", "mixer", Media::audio, Fate::succeeds, false, "peak"},
};

// Some nodes read it instead of the first one, which some node has to read.
void add_second_input(Chance& chance, ModelShape& shape) {
  if (chance.one_in(2) || shape.nodes.size() < 2) return;
  for (ModelNode& node : shape.nodes) {
    if (node.first != 0) ++node.first;
    if (node.second && *node.second != 0) ++*node.second;
  }
  ++shape.inputs;
  shape.nodes.back().first = 1;
}

}  // namespace

const PluginKind& draw_kind(Chance& chance) {
  return kinds[chance.draw(std::size(kinds))];
}

ModelShape draw_shape(Chance& chance, const std::vector<UnitPointer>& units, Media media) {
  ModelShape shape;
  shape.media = media;
  std::vector<UnitPointer> able;
  for (const UnitPointer& unit : units) {
    if (unit->is_active && unit->kind->media == media) able.push_back(unit);
  }
  if (able.empty()) return shape;
  shape.inputs = 1;
  const std::size_t count = 1 + chance.draw(4);
  for (std::size_t n = 0; n < count; ++n) {
    const UnitPointer& unit = chance.any_of(able);
    // A mixer in two nodes would remember a block of the one or of the other.
    const bool is_there = std::any_of(shape.nodes.begin(), shape.nodes.end(),
                                      [&](const ModelNode& node) { return node.unit == unit; });
    if (is_there && media == Media::audio) continue;
    ModelNode node{unit, chance.draw(1 + shape.nodes.size()), {}, 0, 0};
    if (unit->kind->results != nullptr && chance.one_in(2)) {
      node.second = chance.draw(1 + shape.nodes.size());
    }
    shape.nodes.push_back(node);
  }
  shape.nodes[0].first = 0;
  add_second_input(chance, shape);
  shape.outputs.push_back({shape.nodes.size() - 1, false});
  if (chance.one_in(2)) shape.outputs.push_back({chance.draw(shape.nodes.size()), false});
  const std::size_t found = chance.draw(shape.nodes.size());
  if (shape.nodes[found].unit->kind->results != nullptr) shape.outputs.push_back({found, true});
  return shape;
}

ActivationSizes common_sizes(const ModelShape& shape) {
  ActivationSizes sizes = shape.nodes[0].unit->sizes;
  for (const ModelNode& node : shape.nodes) {
    sizes.max_width = std::min(sizes.max_width, node.unit->sizes.max_width);
    sizes.max_height = std::min(sizes.max_height, node.unit->sizes.max_height);
  }
  return sizes;
}

void spoil(Chance& chance, GraphDescription& graph, ActivationSizes& sizes, GraphOptions& options,
           PluginInstance& foreign) {
  switch (chance.draw(9)) {
    case 0:
      return graph.edges.push_back({"nobody", graph.nodes[0].name});
    case 1:
      return void(graph.edges.erase(graph.edges.begin()));  // the first node's input
    case 2:
      graph.edges[0].to += ".nothing";
      return;
    case 3:
      graph.nodes.back().instance = nullptr;
      return;
    case 4:
      graph.nodes.back().instance = &foreign;
      return;
    case 5:
      graph.nodes.back().name = graph.inputs[0].name;
      return;
    case 6:
      options.jobs_in_flight = chance.one_in(2) ? 0 : 65;
      return;
    case 7:
      return graph.outputs.clear();
    default:
      sizes.max_width = chance.one_in(2) ? 0 : 1000;
  }
}

GivenJob draw_job(Chance& chance, const ModelShape& shape, const ActivationSizes& sizes) {
  GivenJob job;
  job.info.width = 1 + static_cast<std::uint32_t>(chance.draw(sizes.max_width));
  job.info.height = 1 + static_cast<std::uint32_t>(chance.draw(sizes.max_height));
  job.info.sample_rate = sizes.sample_rate;
  job.info.discontinuity = chance.one_in(5);
  const std::size_t samples = bytes_of(shape, job.info) / sizeof(float);
  for (std::size_t i = 0; i < shape.inputs; ++i) {
    std::vector<float> input(samples);
    for (float& sample : input) sample = static_cast<float>(chance.draw(16));
    job.inputs.push_back(std::move(input));
  }
  for (const ModelOutput& output : shape.outputs) {
    job.outputs.emplace_back(bytes_of(shape, output, job.info), untouched);
  }
  for (auto& input : job.inputs) job.buffers.inputs.push_back(input.data());
  for (auto& output : job.outputs) job.buffers.outputs.push_back(output.data());
  return job;
}

void spoil(Chance& chance, GivenJob& job, const ActivationSizes& sizes) {
  switch (chance.draw(7)) {
    case 0:
      job.buffers.inputs.pop_back();
      break;
    case 1:
      job.buffers.outputs.push_back(job.buffers.outputs[0]);
      break;
    case 2:
      job.buffers.outputs[0] = nullptr;
      break;
    case 3:
      job.info.width = chance.one_in(2) ? 0 : sizes.max_width + 1;
      break;
    case 4:
      job.info.height = chance.one_in(2) ? 0 : UINT32_MAX;
      break;
    case 5:
      job.info.sample_rate = chance.one_in(2) ? std::nan("") : -1;
      break;
    default:
      job.buffers.inputs[0] = nullptr;
  }
}

}  // namespace ctxbroker
