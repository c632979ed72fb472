// SPDX-License-Identifier: Apache-2.0
// Compressor: what is louder than the threshold becomes quieter. It listens to its key, if that is
// connected, else to the sound itself. With look-ahead it is late by as much, and says so.
#include <algorithm>
#include <cmath>
#include <ctxbroker/plugin.hpp>

#include "compressor_kernels.hpp"
#include "sizes.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Real threshold{0,        "threshold", "Threshold", "dB", "Where it begins to work.",
                         {-96, 0}, -24};
constexpr Real ratio{
    1,        "ratio", "Ratio", "", "By how many dB the key rises for each dB that is let through.",
    {1, 100}, 4};
constexpr Real attack{2, "attack", "Attack", "ms", "How fast it takes hold.", {0, 1000}, 5};
constexpr Real release{3, "release", "Release", "ms", "How fast it lets go.", {0, 5000}, 100};
constexpr Real make_up{4,         "make_up", "Make-up", "dB", "How much louder all is in the end.",
                       {-24, 48}, 0};
constexpr Real look_ahead{5,
                          "look_ahead",
                          "Look-ahead",
                          "ms",
                          "How early it hears the key. A change waits for a restart.",
                          {0, 50},
                          0};
constexpr auto parameters = parameter_table(threshold, ratio, attack, release, make_up, look_ahead);
constexpr const char* features[] = {"compressor", "dynamics", nullptr};

enum Input : std::uint32_t { sound, key };
constexpr ctxb_port inputs[] = {
    port("in", "Input", any_audio),
    port("key", "Key", any_audio, CTXB_PORT_SIDE_CHAIN | CTXB_PORT_OPTIONAL)};

// What is left of a distance after one frame, if 1/e of it is left after `milliseconds`.
double left_after_a_frame(double milliseconds, double rate) {
  return milliseconds <= 0 ? 0 : std::exp(-1000 / (milliseconds * rate));
}

class Compressor final : public Plugin, public Latent {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.ctxbroker.sample.compressor", "Compressor", "1.0.0")
          .vendor("ctxbroker")
          .description("Makes what is loud quieter, by its own loudness or a key's.")
          .features(features)
          .parameters(parameters)
          .modules(compressor_kernels::modules)
          .inputs(inputs)
          .flags(CTXB_PLUGIN_REALTIME | CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_audio(activation);
    rate_ = sample::checked_rate(activation.sample_rate());
    measure_ = activation.kernel("measure");
    follow_ = activation.kernel("follow");
    apply_ = activation.kernel("apply");
    late_ = frames_of(activation[look_ahead]);
    capacity_ = late_ + activation.max_frames();
    ring_ = activation.buffer<float>(std::size_t{capacity_} * activation.max_channels());
    reduction_ = activation.buffer<double>(activation.max_frames());
    envelope_ = activation.buffer<double>(1);
    activation.clear(envelope_);
    head_ = known_ = 0;
  }

  Outcome process(const Job& job) override {
    if (frames_of(job[look_ahead]) != late_) {
      host().request_restart();  // the latency is constant until then
    }
    const AudioView out = job.output_audio();
    const AudioView heard = job.input_audio(job.has_input(key) ? key : sound);
    const std::uint32_t reset = job.discontinuity() ? 1 : 0;
    const std::uint32_t known = reset != 0 ? 0 : known_;
    job.launch(measure_, over(out.frames, 1), heard, reduction_, job[threshold],
               1 - 1 / job[ratio]);
    job.launch(follow_, {{1, 1, 1}, {1, 1, 1}}, reduction_, out.frames, envelope_, reset,
               left_after_a_frame(job[attack], rate_), left_after_a_frame(job[release], rate_));
    job.launch(apply_, over(out.frames, out.channels), job.input_audio(sound), out, reduction_,
               job[make_up], ring_, capacity_, head_, known, late_);
    head_ = (head_ + out.frames) % capacity_;
    known_ = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(std::uint64_t{known} + out.frames, late_));
    return Outcome::done;
  }

  std::uint64_t latency() const override { return late_; }
  std::uint64_t tail() const override { return late_; }

 private:
  std::uint32_t frames_of(double milliseconds) const {
    return static_cast<std::uint32_t>(std::lround(milliseconds / 1000 * rate_));
  }

  Kernel measure_, follow_, apply_;
  DeviceBuffer<float> ring_;        // past sound, of each channel
  DeviceBuffer<double> reduction_;  // dB, for each frame of the block
  DeviceBuffer<double> envelope_;   // dB, after the last block
  double rate_ = 1;
  std::uint32_t late_ = 0;      // frames
  std::uint32_t capacity_ = 1;  // frames in the ring, for each channel
  std::uint32_t head_ = 0;      // where the next block begins in it
  std::uint32_t known_ = 0;     // frames before it that were written, up to late_
};

}  // namespace

CTXB_EXPORT_PLUGINS(Compressor)
