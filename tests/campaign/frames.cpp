// SPDX-License-Identifier: Apache-2.0
#include "frames.hpp"

namespace ctxbroker::campaign {
namespace {

constexpr std::size_t samples = std::size_t{width} * height * 4;

float input_sample(int plugin, std::int64_t position, std::size_t sample) {
  const auto at = static_cast<std::uint64_t>(position) * 13 + static_cast<unsigned>(plugin) * 5;
  return static_cast<float>((sample * 7 + at) % 128);
}

}  // namespace

JobInfo job_of(std::int64_t position) {
  JobInfo job;
  job.width = width;
  job.height = height;
  job.position = position;
  return job;
}

std::vector<float> input_of(int plugin, std::int64_t position) {
  std::vector<float> all(samples);
  for (std::size_t i = 0; i < samples; ++i) all[i] = input_sample(plugin, position, i);
  return all;
}

// Small whole numbers: exact in whatever order they are multiplied and added.
std::vector<float> expected_of(int plugin, std::int64_t position) {
  std::vector<float> all(samples);
  for (std::size_t i = 0; i < samples; ++i) {
    const std::size_t pixel = i / 4;
    const auto added = static_cast<float>(pixel % 256 * 37 % 64);
    all[i] = input_sample(plugin, position, i) * static_cast<float>(factor_of(plugin)) + added;
  }
  return all;
}

std::vector<float> empty_output() {
  return std::vector<float>(samples, -1.0F);
}

}  // namespace ctxbroker::campaign
