// SPDX-License-Identifier: Apache-2.0
// What job_sequence_test.cpp draws: instances, graphs and jobs, right ones and wrong ones.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "job_sequence_model.hpp"

namespace ctxbroker {

struct Chance {
  std::mt19937 random;

  explicit Chance(unsigned seed) : random(seed) {}
  std::size_t draw(std::size_t below) {
    return std::uniform_int_distribution<std::size_t>(0, below - 1)(random);
  }
  bool one_in(std::size_t count) { return draw(count) == 0; }
  template <typename Thing>
  Thing& any_of(std::vector<Thing>& all) {
    return all[draw(all.size())];
  }
};

const PluginKind& draw_kind(Chance& chance);

// Of active units. Without nodes if there are none for this media.
ModelShape draw_shape(Chance& chance, const std::vector<UnitPointer>& units, Media media);

// The largest job that all instances serve.
ActivationSizes common_sizes(const ModelShape& shape);

struct GivenJob {
  JobInfo info;
  std::vector<std::vector<float>> inputs;
  std::vector<Bytes> outputs;  // `untouched`
  JobBuffers buffers;
};
constexpr std::byte untouched{0xA5};

GivenJob draw_job(Chance& chance, const ModelShape& shape, const ActivationSizes& sizes);

// These make something of it that is always refused. `foreign` is another broker's.
void spoil(Chance& chance, GraphDescription& graph, ActivationSizes& sizes, GraphOptions& options,
           PluginInstance& foreign);
void spoil(Chance& chance, GivenJob& job, const ActivationSizes& sizes);

}  // namespace ctxbroker
