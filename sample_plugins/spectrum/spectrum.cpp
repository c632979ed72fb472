// SPDX-License-Identifier: Apache-2.0
// Spectrum: tells the host how loud each frequency is. results.hpp describes what it gives.
#include <cmath>
#include <ctxbroker/plugin.hpp>
#include <vector>

#include "results.hpp"
#include "sizes.hpp"
#include "spectrum_kernels.hpp"

namespace {

using namespace ctxbroker::sdk;
using namespace sample::spectrum;

constexpr const char* features[] = {"analyser", "spectrum", nullptr};
constexpr ctxb_port inputs[] = {port("in", "Input", any_audio)};
constexpr ctxb_port outputs[] = {results_port("bins", "Spectrum", result_bytes)};

// How many windows have ended within so many frames.
std::uint64_t windows_in(std::uint64_t frames) {
  return frames < window_frames ? 0 : (frames - window_frames) / hop_frames + 1;
}

class Spectrum final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.ctxbroker.sample.spectrum", "Spectrum", "1.0.0")
          .vendor("ctxbroker")
          .description("Measures how loud each frequency is.")
          .features(features)
          .modules(spectrum_kernels::modules)
          .inputs(inputs)
          .outputs(outputs)
          .flags(CTXB_PLUGIN_REALTIME | CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_audio(activation);
    mix_ = activation.kernel("mix");
    analyse_ = activation.kernel("analyse");
    rate_ = sample::checked_rate(activation.sample_rate());
    capacity_ = window_frames + activation.max_frames();
    ring_ = activation.buffer<float>(capacity_);
    // Hann's window, scaled so that a bin is an amplitude; then a turn's cosines and sines.
    std::vector<float> table;
    constexpr double turn = 2 * 3.14159265358979323846;
    for (std::uint32_t i = 0; i < window_frames; ++i) {
      table.push_back(
          static_cast<float>((1 - std::cos(turn * i / window_frames)) * 2 / window_frames));
    }
    for (std::uint32_t i = 0; i < window_frames / 2; ++i) {
      table.push_back(static_cast<float>(std::cos(turn * i / window_frames)));
      table.push_back(static_cast<float>(-std::sin(turn * i / window_frames)));
    }
    table_ = activation.buffer<float>(table.size());
    activation.upload(table_, table.data(), table.size());
    heard_ = 0;
  }

  Outcome process(const Job& job) override {
    const AudioView in = job.input_audio();
    if (job.discontinuity()) heard_ = 0;
    const std::uint64_t ended = windows_in(heard_ + in.frames);
    std::uint64_t first = windows_in(heard_);
    if (ended - first > most_windows) first = ended - most_windows;
    const auto count = static_cast<std::uint32_t>(ended - first);
    job.launch(mix_, over(in.frames, 1), in, ring_, capacity_,
               static_cast<std::uint32_t>(heard_ % capacity_));
    const Header header{sizeof(Header), count, window_frames, hop_frames,
                        bin_count,      0,     first,         rate_};
    const auto begin = static_cast<std::uint32_t>(first * hop_frames % capacity_);
    job.launch(analyse_, {{most_windows, 1, 1}, {window_frames / 2, 1, 1}}, ring_, capacity_, begin,
               table_, header, job.output(0).data);
    heard_ += in.frames;
    return Outcome::done;
  }

 private:
  Kernel mix_, analyse_;
  DeviceBuffer<float> ring_, table_;
  double rate_ = 1;
  std::uint32_t capacity_ = 1;  // frames in the ring
  std::uint64_t heard_ = 0;     // frames since the last discontinuity
};

}  // namespace

CTXB_EXPORT_PLUGINS(Spectrum)
