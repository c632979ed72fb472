// SPDX-License-Identifier: Apache-2.0
#include "sample_runner.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

namespace ctxbroker::test {
namespace {

double exact_float(double value) {
  return static_cast<double>(static_cast<float>(value));
}

}  // namespace

std::filesystem::path plugin_file(const std::string& name) {
  const auto root = std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
  const std::filesystem::path sample = root / "plugins" / (name + ".so");
  return exists(sample) ? sample : root / "test_plugins" / (name + ".so");
}

PluginInstance SampleRunner::create(const Stage& stage, LeaseKind lease) {
  const PluginLibrary library = broker_.load(plugin_file(stage.plugin));
  InstanceOptions options;
  options.lease = LeaseChoice(lease);
  options.job_graphs = job_graphs_;
  PluginInstance instance = broker_.create(library, stage.plugin, options);
  for (const auto& [id, value] : stage.parameters) {
    instance.set_parameter(id, value);
  }
  return instance;
}

SampleRunner::Session SampleRunner::start(const std::vector<Stage>& stages,
                                          const ActivationSizes& sizes, LeaseKind lease) {
  std::vector<PluginInstance> instances;
  instances.reserve(stages.size());
  for (const Stage& stage : stages) {
    instances.push_back(create(stage, lease));
  }
  return {broker_, std::move(instances), sizes};
}

SampleRunner::Session::Session(Broker& broker, std::vector<PluginInstance> instances,
                               const ActivationSizes& sizes)
    : instances_(std::move(instances)), sizes_(sizes) {
  std::vector<PluginInstance*> stages;
  for (PluginInstance& instance : instances_) {
    instance.activate(sizes_);
    stages.push_back(&instance);
  }
  graph_ = std::make_unique<Graph>(broker, stages, sizes_);
}

std::vector<float> SampleRunner::Session::image(const reference::Image& in) {
  const std::vector<float> source(in.values.begin(), in.values.end());
  std::vector<float> target(source.size(), std::nanf(""));
  JobInfo job;
  job.width = in.width;
  job.height = in.height;
  graph_->process(source.data(), target.data(), job);
  return target;
}

std::vector<std::vector<float>> SampleRunner::Session::block(const reference::Audio& in,
                                                             std::size_t first, std::size_t last,
                                                             bool discontinuity) {
  const std::size_t frames = last - first;
  std::vector<float> source;
  for (const reference::Channel& channel : in) {
    for (std::size_t i = first; i < last; ++i) {
      source.push_back(static_cast<float>(channel[i]));
    }
  }
  std::vector<float> target(source.size(), std::nanf(""));
  JobInfo job;
  job.width = static_cast<std::uint32_t>(frames);
  job.height = static_cast<std::uint32_t>(in.size());
  job.position = static_cast<std::int64_t>(first);
  job.sample_rate = sizes_.sample_rate;
  job.discontinuity = discontinuity;
  graph_->process(source.data(), target.data(), job);
  std::vector<std::vector<float>> out;
  for (std::size_t c = 0; c < in.size(); ++c) {
    const auto begin = target.begin() + static_cast<std::ptrdiff_t>(c * frames);
    out.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(frames));
  }
  return out;
}

std::vector<std::vector<float>> SampleRunner::Session::audio(
    const reference::Audio& in, const std::vector<std::size_t>& lengths) {
  std::vector<std::vector<float>> out(in.size());
  std::size_t first = 0;
  for (std::size_t number = 0; first < in[0].size(); ++number) {
    const std::size_t length = lengths[number % lengths.size()];
    const std::size_t last = std::min(first + length, in[0].size());
    const std::vector<std::vector<float>> part = block(in, first, last, first == 0);
    for (std::size_t c = 0; c < in.size(); ++c) {
      out[c].insert(out[c].end(), part[c].begin(), part[c].end());
    }
    first = last;
  }
  return out;
}

reference::Image test_image(std::uint32_t width, std::uint32_t height, unsigned int seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> colour(-0.25, 4);
  std::uniform_real_distribution<double> alpha(0, 1);
  reference::Image image(width, height);
  for (std::uint32_t y = 0; y < height; ++y) {
    for (std::uint32_t x = 0; x < width; ++x) {
      const bool flat = (x / 24 + y / 24) % 2 == 0;
      for (std::size_t c = 0; c < 3; ++c) {
        const double smooth = (x % 24) / 24.0 + static_cast<double>(c) * 0.5;
        image.at(x, y, c) = exact_float(flat ? smooth : colour(random));
      }
      const std::uint32_t region = (x / 50 + y / 40) % 3;
      image.at(x, y, 3) = exact_float(region == 0 ? 1 : (region == 1 ? alpha(random) : 0));
    }
  }
  return image;
}

reference::Audio test_audio(std::size_t channels, std::size_t frames, unsigned int seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> noise(-1, 1);
  reference::Audio audio(channels, reference::Channel(frames));
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < frames; ++i) {
      const double parts[] = {noise(random),
                              0.8 * std::sin(0.05 * static_cast<double>((c + 1) * i)),
                              0.5 / static_cast<double>(c + 1), 0.0};
      audio[c][i] = exact_float(parts[i * 4 / frames]);
    }
  }
  return audio;
}

void expect_close(const std::vector<float>& actual, const std::vector<double>& expected,
                  double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double peak = 0;
  for (const double value : expected) {
    peak = std::max(peak, std::abs(value));
  }
  double worst = 0;
  std::size_t worst_at = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(static_cast<double>(actual[i]) - expected[i]);
    if (!(difference <= worst)) {  // a NaN is the worst of all
      worst = difference;
      worst_at = i;
    }
    if (std::isnan(worst)) {
      break;
    }
  }
  if (!expected.empty()) {
    EXPECT_LE(worst, tolerance * peak)
        << "value " << worst_at << " of " << expected.size() << " is " << actual[worst_at]
        << ", expected " << expected[worst_at] << "; the peak is " << peak;
  }
}

void expect_close(const std::vector<std::vector<float>>& actual, const reference::Audio& expected,
                  double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t c = 0; c < expected.size(); ++c) {
    SCOPED_TRACE("channel " + std::to_string(c));
    expect_close(actual[c], expected[c], tolerance);
  }
}

}  // namespace ctxbroker::test
