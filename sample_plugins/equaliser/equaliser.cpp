// SPDX-License-Identifier: Apache-2.0
// Equaliser: low shelf, peak and high shelf, one biquad each (R. Bristow-Johnson's cookbook), with
// the filters' state kept on the device from block to block.
#include <algorithm>
#include <cmath>
#include <ctxbroker/plugin.hpp>

#include "bands.hpp"
#include "equaliser_kernels.hpp"
#include "sizes.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Range frequencies{10, 40000};
constexpr Range gains{-36, 36};
constexpr Range qualities{0.1, 20};
constexpr const char* frequency_text = "Corner or centre; at most just below half the sample rate.";
constexpr const char* gain_text = "How much louder the band is; 0 leaves it as it is.";
constexpr const char* quality_text = "Steepness of a shelf, narrowness of the peak.";

constexpr Real low_freq = in_group("Low shelf", skewed(3, Real{0, "low_freq", "Low frequency", "Hz",
                                                               frequency_text, frequencies, 120}));
constexpr Real low_gain =
    in_group("Low shelf", Real{1, "low_gain", "Low gain", "dB", gain_text, gains, 0});
constexpr Real low_q =
    in_group("Low shelf", Real{2, "low_q", "Low Q", "", quality_text, qualities, 0.7071});
constexpr Real mid_freq = in_group("Peak", skewed(3, Real{3, "mid_freq", "Mid frequency", "Hz",
                                                          frequency_text, frequencies, 1000}));
constexpr Real mid_gain =
    in_group("Peak", Real{4, "mid_gain", "Mid gain", "dB", gain_text, gains, 0});
constexpr Real mid_q = in_group("Peak", Real{5, "mid_q", "Mid Q", "", quality_text, qualities, 1});
constexpr Real high_freq = in_group(
    "High shelf",
    skewed(3, Real{6, "high_freq", "High frequency", "Hz", frequency_text, frequencies, 6000}));
constexpr Real high_gain =
    in_group("High shelf", Real{7, "high_gain", "High gain", "dB", gain_text, gains, 0});
constexpr Real high_q =
    in_group("High shelf", Real{8, "high_q", "High Q", "", quality_text, qualities, 0.7071});
constexpr auto parameters = parameter_table(low_freq, low_gain, low_q, mid_freq, mid_gain, mid_q,
                                            high_freq, high_gain, high_q);
constexpr const char* features[] = {"equaliser", "filter", nullptr};

// What the three kinds of filter have in common.
struct Corner {
  Corner(double frequency, double gain, double q, double sample_rate)
      : a(std::pow(10.0, gain / 40)) {
    const double w = 2 * 3.14159265358979323846 * std::min(frequency / sample_rate, 0.499);
    cosine = std::cos(w);
    alpha = std::sin(w) / (2 * q);
  }
  double a, cosine, alpha;
};

Biquad normalised(double b0, double b1, double b2, double a0, double a1, double a2) {
  return {b0 / a0, b1 / a0, b2 / a0, a1 / a0, a2 / a0};
}

Biquad peak(const Corner& f) {
  return normalised(1 + f.alpha * f.a, -2 * f.cosine, 1 - f.alpha * f.a, 1 + f.alpha / f.a,
                    -2 * f.cosine, 1 - f.alpha / f.a);
}

// `side` is +1 for a low and -1 for a high shelf.
Biquad shelf(const Corner& f, double side) {
  const double root = 2 * std::sqrt(f.a) * f.alpha;
  const double up = f.a + 1;
  const double down = f.a - 1;
  const double c = side * f.cosine;
  return normalised(f.a * (up - down * c + root), side * 2 * f.a * (down - up * c),
                    f.a * (up - down * c - root), up + down * c + root, side * -2 * (down + up * c),
                    up + down * c - root);
}

class Equaliser final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.ctxbroker.sample.equaliser", "Equaliser", "1.0.0")
          .vendor("ctxbroker")
          .description("Three bands: low shelf, peak and high shelf.")
          .features(features)
          .parameters(parameters)
          .modules(equaliser_kernels::modules)
          .in_place()
          .flags(CTXB_PLUGIN_REALTIME | CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_audio(activation);
    sample::checked_rate(activation.sample_rate());
    kernel_ = activation.kernel("equaliser");
    max_channels_ = activation.max_channels();
    history_ = activation.buffer<double>(std::size_t{2} * band_count * max_channels_);
    activation.clear(history_);
  }

  Outcome process(const Job& job) override {
    const double rate = sample::checked_rate(job.sample_rate());
    const Bands bands{{shelf({job[low_freq], job[low_gain], job[low_q], rate}, 1),
                       peak({job[mid_freq], job[mid_gain], job[mid_q], rate}),
                       shelf({job[high_freq], job[high_gain], job[high_q], rate}, -1)}};
    const AudioView out = job.output_audio();
    const std::uint32_t reset = job.discontinuity() ? 1 : 0;
    constexpr std::uint32_t threads = 32;
    const LaunchShape shape{{(out.channels - 1) / threads + 1, 1, 1}, {threads, 1, 1}, 0};
    job.launch(kernel_, shape, job.input_audio(), out, history_, max_channels_, reset, bands);
    return Outcome::done;
  }

 private:
  Kernel kernel_;
  DeviceBuffer<double> history_;
  std::uint32_t max_channels_ = 0;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Equaliser)
