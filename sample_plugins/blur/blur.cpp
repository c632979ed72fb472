// SPDX-License-Identifier: Apache-2.0
// Gaussian blur, separable, right for straight alpha: colours count by their alpha.
#include <ctxbroker/plugin.hpp>

#include "blur_kernels.hpp"
#include "gaussian_stage.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Real radius{0,
                      "radius",
                      "Radius",
                      "px",
                      "How far it reaches: three standard deviations.",
                      {0, sample::gaussian_max_radius},
                      6};
constexpr auto parameters = parameter_table(radius);
constexpr ctxb_port inputs[] = {port("in", "Input", rgba_float_or_half)};
constexpr ctxb_port outputs[] = {port("out", "Output", rgba_float_or_half)};
constexpr const char* features[] = {"blur", "gaussian", nullptr};

class Blur final : public Plugin, public Regional {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("org.ctxbroker.sample.blur", "Blur", "1.0.0")
          .vendor("ctxbroker")
          .description("Gaussian blur of colours and alpha.")
          .features(features)
          .inputs(inputs)
          .outputs(outputs)
          .parameters(parameters)
          .modules(blur_kernels::modules)
          .flags(CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    columns_ = activation.kernel("blur_columns");
    gaussian_.activate(activation);
  }

  Rectangle region(const RegionQuestion& question, std::uint32_t, const Rectangle& wanted,
                   std::uint32_t input) const override {
    return sample::gaussian_region(wanted, question[radius], question.extent(input));
  }

  Outcome process(const Job& job) override {
    const PixelView in = job.input_pixels();
    const PixelView out = job.output_pixels();
    const ImageView sums = gaussian_.enqueue_rows(job, in, out, job[radius]);
    job.launch(columns_, gaussian_.column_shape(out), sums, in, out, gaussian_.weights(),
               gaussian_.reach());
    return Outcome::done;
  }

 private:
  Kernel columns_;
  sample::GaussianStage gaussian_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Blur)
