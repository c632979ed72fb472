// SPDX-License-Identifier: Apache-2.0
#include "rig.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "ctxbroker/plugin.h"
#include "driver_calls.hpp"
#include "observe/number_text.hpp"

namespace ctxbroker::validate {

Rig::Rig(const Trial& trial) : trial_(trial), records_(std::make_shared<Records>()) {
  BrokerOptions options;
  options.host_name = "ctxb-validate";
  options.driver = trial.driver;
  options.records = [records = records_](const Record& record) {
    const std::lock_guard lock(records->mutex);
    records->all.push_back(record);
  };
  broker_ = std::make_unique<Broker>(Broker::open(std::move(options)));
  bind_driver(broker_->driver().path);
  load_again();
}

Rig::~Rig() = default;

void Rig::load_again() {
  library_ = std::make_unique<PluginLibrary>(broker_->load(trial_.file));
  attach(library_->path());
}

void Rig::end_library() {
  library_.reset();
}

const PluginDescription& Rig::plugin() const {
  const auto& all = library_->plugins();
  if (trial_.plugin.empty() && all.size() == 1) return all.front();
  for (const PluginDescription& one : all) {
    if (one.id == trial_.plugin || one.short_name == trial_.plugin) return one;
  }
  throw Failed("name one of the library's plug-ins with --plugin: \"" + trial_.plugin +
               "\" is none");
}

PluginInstance Rig::create(int device) {
  InstanceOptions options;
  options.device = Placement(device);
  return broker_->create(*library_, plugin().id, options);
}

PluginInstance Rig::active(const ActivationSizes& sizes) {
  PluginInstance instance = create();
  instance.activate(sizes);
  return instance;
}

std::vector<std::string> Rig::strikes() const {
  std::vector<std::string> texts;
  const std::lock_guard lock(records_->mutex);
  for (const Record& record : records_->all) {
    if (record.topic == std::string_view("strike")) texts.push_back(record.text);
  }
  return texts;
}

TenantMetrics Rig::metrics() const {
  for (TenantMetrics& tenant : broker_->metrics().tenants) {
    if (tenant.id == library_->tenant()) return std::move(tenant);
  }
  return {};
}

// ---- Bench ----------------------------------------------------------------------------------

double number_at(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) noexcept {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15u + stream * 0xD1B54A32D192ED03u + index;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  return static_cast<double>(x >> 11) / 9007199254740992.0;
}

ActivationSizes usual_sizes(const PluginDescription& plugin) {
  if (plugin.media == Media::audio) return {256, 2, 48000, false};
  return {64, 48, 0, false};
}

Setup usual_setup(const Rig& rig, std::uint64_t seed) {
  Setup setup;
  setup.sizes = usual_sizes(rig.plugin());
  setup.seed = seed;
  return setup;
}

Bench::Bench(Rig& rig, PluginInstance& instance, const Setup& setup)
    : plugin_(instance.description()),
      instance_(instance),
      setup_(setup),
      graph_(rig.broker(), describe(), setup.sizes, setup.options) {}

Bench::Format Bench::format_of(const PortDescription& port) const {
  Format format;
  format.result_bytes = port.result_bytes;
  if (port.result_bytes != 0) return format;
  const bool audio = plugin_.media == Media::audio;
  const std::uint32_t wanted = setup_.channels != 0 ? setup_.channels : (audio ? 2 : 4);
  const auto takes = [&](std::uint32_t count) {
    return count >= 1 && count <= 32 && (port.channels & CTXB_CHANNELS(count)) != 0;
  };
  format.channels =
      takes(wanted) ? wanted : static_cast<std::uint32_t>(std::countr_zero(port.channels)) + 1;
  const auto bit = [](SampleType type) { return static_cast<std::uint32_t>(type); };
  const bool has_wanted = (port.samples & bit(setup_.samples)) != 0;
  const SampleType other =
      (port.samples & bit(SampleType::float32)) != 0 ? SampleType::float32 : SampleType::float16;
  format.samples = audio || !has_wanted ? other : setup_.samples;
  return format;
}

GraphDescription Bench::describe() {
  GraphDescription made;
  made.nodes.push_back({"node", &instance_});
  for (const PortDescription& port : plugin_.inputs) {
    if (port.optional && !setup_.connects_optional) continue;
    const Format format = format_of(port);
    inputs_.push_back(format);
    made.inputs.push_back({"in_" + port.id, format.channels, format.samples, false});
    made.edges.push_back({"in_" + port.id, "node." + port.id});
  }
  for (const PortDescription& port : plugin_.outputs) {
    const Format format = format_of(port);
    outputs_.push_back(format);
    made.outputs.push_back({"out_" + port.id, format.channels, format.samples, false});
    made.edges.push_back({"node." + port.id, "out_" + port.id});
  }
  return made;
}

std::size_t Bench::bytes_of(const Format& format, std::uint32_t width, std::uint32_t height) const {
  if (format.result_bytes != 0) return format.result_bytes;
  const std::size_t sample = format.samples == SampleType::float16 ? 2 : 4;
  const std::size_t rows = plugin_.media == Media::audio ? 1 : height;
  return sample * format.channels * width * rows;
}

std::size_t Bench::sample_bytes(std::size_t output) const {
  const Format& format = outputs_[output];
  if (format.result_bytes != 0) return 1;
  return format.samples == SampleType::float16 ? 2 : 4;
}

void Bench::fill(Bytes& bytes, const Format& format, std::uint64_t input, std::int64_t position,
                 std::uint32_t width) const {
  const bool audio = plugin_.media == Media::audio;
  const std::size_t count = bytes.size() / (format.samples == SampleType::float16 ? 2 : 4);
  for (std::size_t i = 0; i < count; ++i) {
    // A sample of the song is the same wherever the blocks begin.
    const std::uint64_t stream =
        audio ? input * 64 + i / width : input * 1000003 + static_cast<std::uint64_t>(position);
    const std::uint64_t index = audio ? static_cast<std::uint64_t>(position) + i % width : i;
    double value = number_at(setup_.seed, stream, index);
    if (audio) value = 2 * value - 1;
    if (format.samples == SampleType::float16) {
      auto bits = static_cast<std::uint16_t>(0x3800 + static_cast<int>(value * 1023));
      if (setup_.has_odd_values && i % 5 == 0) bits = i % 10 == 0 ? 0x7E00 : 0xFC00;
      std::memcpy(&bytes[2 * i], &bits, 2);
      continue;
    }
    auto number = static_cast<float>(value);
    if (setup_.has_odd_values && i % 5 == 0) {
      constexpr float odd[] = {std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               3e38F,
                               -3e38F,
                               1e-42F};
      number = odd[i / 5 % std::size(odd)];
    }
    std::memcpy(&bytes[4 * i], &number, 4);
  }
}

JobInfo job_of(const PluginDescription& plugin, std::uint32_t width, std::uint32_t height,
               std::int64_t position, double rate) {
  JobInfo job;
  job.width = width;
  job.height = height;
  job.position = position;
  job.sample_rate = plugin.media == Media::audio ? rate : 0;
  return job;
}

JobInfo Bench::job(std::int64_t number, bool discontinuity) const {
  const std::int64_t step = plugin_.media == Media::audio ? setup_.sizes.max_width : 1;
  JobInfo made = job_of(plugin_, setup_.sizes.max_width, setup_.sizes.max_height, number * step,
                        setup_.sizes.sample_rate);
  made.discontinuity = discontinuity;
  return made;
}

std::vector<Bytes> Bench::run(const JobInfo& job, const JobEvents& events) {
  std::vector<Bytes> given, got;
  for (const JobInput& one : graph_.job_inputs()) {
    const Format& format = inputs_[one.input];
    given.emplace_back(bytes_of(format, job.width, job.height));
    fill(given.back(), format, one.input, job.position + one.frame, job.width);
  }
  for (const Format& format : outputs_) {
    // What is not written must not look as if it were.
    got.emplace_back(bytes_of(format, job.width, job.height), std::byte{0x5A});
  }
  JobBuffers buffers;
  for (const Bytes& one : given) buffers.inputs.push_back(one.data());
  for (Bytes& one : got) buffers.outputs.push_back(one.data());
  graph_.process(buffers, job, events);
  return got;
}

std::vector<float> Bench::sound_of(std::size_t input, std::uint32_t frames) const {
  Bytes bytes(bytes_of(inputs_[input], frames, 1));
  fill(bytes, inputs_[input], input, 0, frames);
  std::vector<float> channel(frames);
  std::memcpy(channel.data(), bytes.data(), channel.size() * sizeof(float));
  return channel;
}

std::vector<Bytes> Bench::run_tile(const JobInfo& job) {
  const std::vector<ImageRegion> regions = graph_.input_regions(job);
  std::vector<Bytes> given, got;
  JobBuffers buffers;
  for (std::size_t k = 0; k < regions.size(); ++k) {
    const JobInput& one = graph_.job_inputs()[k];
    const Format& format = inputs_[one.input];
    Bytes all(bytes_of(format, job.width, job.height));
    fill(all, format, one.input, job.position + one.frame, job.width);
    const ImageRegion& region = regions[k];
    const std::size_t pixel = bytes_of(format, 1, 1);
    Bytes part(pixel * region.width * region.height);
    for (std::uint32_t row = 0; row < region.height; ++row) {
      const std::size_t from = ((static_cast<std::size_t>(region.y) + row) * job.width +
                                static_cast<std::size_t>(region.x)) *
                               pixel;
      std::memcpy(part.data() + std::size_t{row} * region.width * pixel, all.data() + from,
                  region.width * pixel);
    }
    given.push_back(std::move(part));
  }
  for (const Format& format : outputs_) {
    got.emplace_back(bytes_of(format, job.region.width, job.region.height), std::byte{0x5A});
  }
  for (const Bytes& one : given) buffers.inputs.push_back(one.data());
  for (Bytes& one : got) buffers.outputs.push_back(one.data());
  graph_.process(buffers, job);
  return got;
}

std::vector<Bytes> Bench::run_several(int count, std::int64_t first) {
  std::vector<Bytes> all;
  for (int i = 0; i < count; ++i) {
    for (Bytes& one : run(job(first + i, i == 0))) all.push_back(std::move(one));
  }
  return all;
}

std::string difference(const std::vector<Bytes>& is, const std::vector<Bytes>& should,
                       double tolerance) {
  for (std::size_t k = 0; k < is.size() && k < should.size(); ++k) {
    const std::string where = "output buffer " + std::to_string(k);
    if (is[k].size() != should[k].size()) return where + " has another size";
    if (tolerance == 0 || is[k].size() % 4 != 0) {
      const auto at = std::mismatch(is[k].begin(), is[k].end(), should[k].begin()).first;
      if (at == is[k].end()) continue;
      const auto byte = static_cast<std::size_t>(at - is[k].begin());
      if (is[k].size() % 4 != 0) return where + ", byte " + std::to_string(byte);
    }
    for (std::size_t i = 0; i + 4 <= is[k].size(); i += 4) {
      float a = 0, b = 0;
      std::memcpy(&a, &is[k][i], 4);
      std::memcpy(&b, &should[k][i], 4);
      if (std::memcmp(&is[k][i], &should[k][i], 4) == 0) continue;
      if (tolerance > 0 && std::abs(a - b) <= tolerance) continue;
      return where + ", float " + std::to_string(i / 4) + ": " + detail::general_text(a, 9) +
             " instead of " + detail::general_text(b, 9);
    }
  }
  return is.size() == should.size() ? "" : "another number of outputs";
}

}  // namespace ctxbroker::validate
