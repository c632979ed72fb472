// SPDX-License-Identifier: Apache-2.0
// Gain in decibels, and mute.
#include <cmath>
#include <ctxbroker/plugin.hpp>

#include "gain_kernels.hpp"
#include "sizes.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Real gain_db{0, "gain_db", "Gain", "dB", "How much louder.", {-120, 48}, 0};
constexpr Toggle mute{1, "mute", "Mute", "Silence.", false};
constexpr auto parameters = parameter_table(gain_db, mute);
constexpr const char* features[] = {"gain", "volume", nullptr};

class Gain final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.ctxbroker.sample.gain", "Gain", "1.0.0")
          .vendor("ctxbroker")
          .description("Makes sound louder or quieter.")
          .features(features)
          .parameters(parameters)
          .modules(gain_kernels::modules)
          .in_place()
          .flags(CTXB_PLUGIN_REALTIME | CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_audio(activation);
    kernel_ = activation.kernel("gain");
  }

  Outcome process(const Job& job) override {
    const AudioView out = job.output_audio();
    const double factor = job[mute] ? 0.0 : std::pow(10.0, job[gain_db] / 20);
    job.launch(kernel_, over(out.frames, out.channels), job.input_audio(), out,
               static_cast<float>(factor));
    return Outcome::done;
  }

 private:
  Kernel kernel_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Gain)
