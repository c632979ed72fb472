// SPDX-License-Identifier: Apache-2.0
// A sine whose frequency and level change at the very sample that the host names. The phase stays
// on the device from block to block.
#include <ctxbroker/plugin.hpp>

#include "sizes.hpp"
#include "tone_kernels.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Real frequency{
    0, "frequency", "Frequency", "Hz", "How high; at most half the sample rate.", {0, 40000}, 440};
constexpr Real level{1, "level", "Level", "", "How loud; 1 is full scale.", {0, 1}, 0.5};
constexpr auto parameters = parameter_table(frequency, level);
constexpr const char* features[] = {"generator", "tone", nullptr};

class Tone final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.ctxbroker.sample.tone", "Tone", "1.0.0")
          .vendor("ctxbroker")
          .description("Generates a sine.")
          .features(features)
          .parameters(parameters)
          .modules(tone_kernels::modules)
          .no_inputs()
          .flags(CTXB_PLUGIN_REALTIME | CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_audio(activation);
    rate_ = sample::checked_rate(activation.sample_rate());
    kernel_ = activation.kernel("tone");
    phase_ = activation.buffer<std::uint64_t>(1);
    activation.clear(phase_);
  }

  // One launch for each stretch on which neither parameter changes its course.
  Outcome process(const Job& job) override {
    const AudioView out = job.output_audio();
    std::uint32_t reset = job.discontinuity() ? 1 : 0;
    const Segments levels = job.segments(level);
    Segments::Iterator loudness = levels.begin();
    for (const Segment& pitch : job.segments(frequency)) {
      for (std::uint32_t at = pitch.first; at < pitch.end;) {
        if (loudness->end <= at) ++loudness;
        const Segment here = pitch.within(at, loudness->end);
        job.launch(kernel_, {{1, 1, 1}, {256, 1, 1}}, out, phase_, here, *loudness, rate_, reset);
        at = here.end;
        reset = 0;
      }
    }
    return Outcome::done;
  }

 private:
  Kernel kernel_;
  DeviceBuffer<std::uint64_t> phase_;
  double rate_ = 1;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Tone)
