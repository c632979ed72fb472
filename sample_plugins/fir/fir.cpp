// SPDX-License-Identifier: Apache-2.0
// FIR filter: a designed low-pass or high-pass filter, or any impulse response of up to 1024 taps
// that a saved state brings along.
#include <cmath>
#include <cstring>
#include <ctxbroker/plugin.hpp>
#include <utility>

#include "design.hpp"
#include "fir_kernels.hpp"
#include "sizes.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr const char* kinds[] = {"low-pass", "high-pass", nullptr};

constexpr Choice kind{0, "kind", "Kind", "Which side of the cutoff stays.", kinds, 0};
constexpr Real cutoff{
    1, "cutoff", "Cutoff", "Hz", "Where the filter is at half its height.", {1, 40000}, 2000};
constexpr Integer tap_count =
    fixed(Integer{2,
                  "taps",
                  "Taps",
                  "",
                  "Length of the filter; the output is late by half of it.",
                  {1, static_cast<double>(max_taps)},
                  128});
constexpr auto parameters = parameter_table(kind, cutoff, tap_count);
constexpr const char* features[] = {"filter", "fir", "convolution", nullptr};

constexpr char state_magic[8] = {'C', 'T', 'X', 'B', 'F', 'I', 'R', '1'};

class Fir final : public Plugin, public Stateful, public Latent {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.ctxbroker.sample.fir", "FIR filter", "1.0.0")
          .vendor("ctxbroker")
          .description("Low-pass, high-pass, or any impulse response of up to 1024 taps.")
          .features(features)
          .parameters(parameters)
          .modules(fir_kernels::modules)
          .flags(CTXB_PLUGIN_REALTIME | CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_audio(activation);
    if (own_.count == 0) {
      sample::checked_rate(activation.sample_rate());
    }
    kernel_ = activation.kernel("fir");
    taps_.count = own_.count != 0 ? own_.count : static_cast<std::size_t>(activation[tap_count]);
    uploaded_ = false;
    device_taps_ = activation.buffer<float>(taps_.count);
    for (DeviceBuffer<float>& history : history_) {
      history = activation.buffer<float>(taps_.count * activation.max_channels());
      activation.clear(history);
    }
  }

  Outcome process(const Job& job) override {
    update_taps(job);
    const AudioView out = job.output_audio();
    constexpr std::uint32_t threads = 256;
    const LaunchShape shape{
        {(out.frames - 1) / threads + 1, out.channels < 65535 ? out.channels : 65535, 1},
        {threads, 1, 1},
        static_cast<std::uint32_t>((2 * taps_.count - 1 + threads) * sizeof(float))};
    job.launch(kernel_, shape, job.input_audio(), out, device_taps_, static_cast<int>(taps_.count),
               history_[0], history_[1], std::uint32_t{job.discontinuity() ? 1U : 0U});
    std::swap(history_[0], history_[1]);
    return Outcome::done;
  }

  // The state is the impulse response that replaces the designed one: none, or up to max_taps.
  void save(StateWriter& writer) const override {
    writer.write(state_magic);
    writer.write(static_cast<std::uint32_t>(own_.count));
    writer.write_bytes(own_.values.data(), own_.count * sizeof(float));
  }

  void load(StateReader& reader) override {
    char magic[sizeof(state_magic)];
    reader.read_bytes(magic, sizeof(magic));
    if (std::memcmp(magic, state_magic, sizeof(magic)) != 0) {
      throw Failure(CTXB_ERROR_VERSION, "the state is not one of this FIR filter");
    }
    const auto count = reader.read<std::uint32_t>();
    if (count > max_taps) {
      throw Failure(CTXB_ERROR_INVALID_ARGUMENT, "the state has " + std::to_string(count) +
                                                     " taps; at most " + std::to_string(max_taps) +
                                                     " are possible");
    }
    Taps read;
    read.count = count;
    reader.read_bytes(read.values.data(), count * sizeof(float));
    reader.expect_end();
    for (std::size_t i = 0; i < count; ++i) {
      if (!std::isfinite(read.values[i])) {
        throw Failure(CTXB_ERROR_INVALID_ARGUMENT,
                      "tap " + std::to_string(i) + " of the state is not a finite number");
      }
    }
    own_ = read;
  }

  // Of a filter that came as a state nothing is known about its delay.
  std::uint64_t latency() const override { return own_.count != 0 ? 0 : (taps_.count - 1) / 2; }
  std::uint64_t tail() const override { return taps_.count - 1; }

 private:
  void update_taps(const Job& job) {
    const auto response = static_cast<Response>(job[kind]);
    // A filter that came as a state has no cutoff.
    const double relative =
        own_.count != 0 ? 0 : job[cutoff] / sample::checked_rate(job.sample_rate());
    if (uploaded_ && (own_.count != 0 || (response == response_ && relative == relative_))) {
      return;
    }
    uploaded_ = false;  // until the upload is on its way
    taps_ = own_.count != 0 ? own_ : design(response, relative, taps_.count);
    job.upload(device_taps_, taps_.values.data(), taps_.count);
    response_ = response;
    relative_ = relative;
    uploaded_ = true;
  }

  Kernel kernel_;
  DeviceBuffer<float> device_taps_;
  DeviceBuffer<float> history_[2];  // read by the next block, written by it
  Taps own_{{}, 0};                 // count 0: designed from the parameters
  Taps taps_;
  bool uploaded_ = false;
  Response response_ = Response::low_pass;
  double relative_ = 0;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Fir)
