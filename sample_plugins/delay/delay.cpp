// SPDX-License-Identifier: Apache-2.0
// Feedback delay: echoes that repeat and fade. The ring of past samples stays on the device; a
// block may be longer than the delay.
#include <algorithm>
#include <cmath>
#include <ctxbroker/plugin.hpp>

#include "delay_kernels.hpp"
#include "sizes.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Real time_ms =
    fixed(Real{0, "time_ms", "Time", "ms", "From one echo to the next.", {1, 5000}, 350});
constexpr Real feedback =
    fixed(Real{1, "feedback", "Feedback", "", "How loud the next echo is.", {0, 0.98}, 0.4});
constexpr Real mix{2, "mix", "Mix", "", "0 is the input alone, 1 the echoes alone.", {0, 1}, 0.35};
constexpr auto parameters = parameter_table(time_ms, feedback, mix);
constexpr const char* features[] = {"delay", "echo", nullptr};

class Delay final : public Plugin, public Latent {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.ctxbroker.sample.delay", "Delay", "1.0.0")
          .vendor("ctxbroker")
          .description("Echoes that repeat and fade.")
          .features(features)
          .parameters(parameters)
          .modules(delay_kernels::modules)
          .in_place()
          .flags(CTXB_PLUGIN_REALTIME | CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_audio(activation);
    const double rate = sample::checked_rate(activation.sample_rate());
    kernel_ = activation.kernel("delay");
    const double frames = std::round(activation[time_ms] / 1000 * rate);
    delay_ = static_cast<std::uint32_t>(std::max(frames, 1.0));
    feedback_ = activation[feedback];
    capacity_ = delay_ + activation.max_frames();
    ring_ = activation.buffer<float>(std::size_t{capacity_} * activation.max_channels());
    head_ = known_ = 0;
  }

  Outcome process(const Job& job) override {
    const AudioView out = job.output_audio();
    const std::uint32_t known = job.discontinuity() ? 0 : known_;
    const double wet = job[mix];
    job.launch(kernel_, over(std::min(delay_, out.frames), out.channels), job.input_audio(), out,
               ring_, capacity_, head_, known, delay_, static_cast<float>(feedback_),
               static_cast<float>(1 - wet), static_cast<float>(wet));
    head_ = (head_ + out.frames) % capacity_;
    known_ = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(std::uint64_t{known} + out.frames, delay_));
    return Outcome::done;
  }

  // Until the echoes are 120 dB down.
  std::uint64_t tail() const override {
    const double echoes = feedback_ > 0 ? std::ceil(-6 / std::log10(feedback_)) : 0;
    return delay_ * (1 + static_cast<std::uint64_t>(echoes));
  }

 private:
  Kernel kernel_;
  DeviceBuffer<float> ring_;
  std::uint32_t delay_ = 1;     // frames
  std::uint32_t capacity_ = 1;  // frames in the ring, for each channel
  std::uint32_t head_ = 0;      // where the next block begins in it
  std::uint32_t known_ = 0;     // frames before it that were written, up to delay_
  double feedback_ = 0;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Delay)
