// SPDX-License-Identifier: Apache-2.0
// Exposure and gamma: rgb = pow(rgb * 2^stops, 1 / gamma), where light below 0 keeps its sign;
// alpha stays.
#include <cmath>
#include <ctxbroker/plugin.hpp>

#include "exposure_kernels.hpp"
#include "sizes.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Real stops{
    0, "stops", "Stops", "EV", "How much brighter; each stop doubles the light.", {-16, 16}, 0};
constexpr Real gamma_value{1, "gamma", "Gamma", "", "Above 1 lifts the dark tones.", {0.1, 10}, 1};
constexpr auto parameters = parameter_table(stops, gamma_value);
constexpr ctxb_port inputs[] = {port("in", "Input", any_image)};
constexpr ctxb_port outputs[] = {in_place_port("out", "Output", any_image)};
constexpr const char* features[] = {"exposure", "gamma", "colour", nullptr};

class Exposure final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("org.ctxbroker.sample.exposure", "Exposure", "1.0.0")
          .vendor("ctxbroker")
          .description("Makes an image brighter or darker and bends its tones.")
          .features(features)
          .inputs(inputs)
          .outputs(outputs)
          .parameters(parameters)
          .modules(exposure_kernels::modules)
          .flags(CTXB_PLUGIN_UNLOADABLE | CTXB_PLUGIN_PER_PIXEL);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_image(activation);
    kernel_ = activation.kernel("exposure");
  }

  Outcome process(const Job& job) override {
    const PixelView in = job.input_pixels();
    const PixelView out = job.output_pixels();
    const auto scale = static_cast<float>(std::exp2(job[stops]));
    const auto exponent = static_cast<float>(1 / job[gamma_value]);
    job.launch(kernel_, over(out.width, out.height), in, out, scale, exponent);
    return Outcome::done;
  }

 private:
  Kernel kernel_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Exposure)
