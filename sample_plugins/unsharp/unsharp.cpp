// SPDX-License-Identifier: Apache-2.0
// Unsharp mask: adds what a blur takes away. Alpha stays.
#include <ctxbroker/plugin.hpp>

#include "gaussian_stage.hpp"
#include "unsharp_kernels.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Real radius{0,
                      "radius",
                      "Radius",
                      "px",
                      "How far the blur reaches: three standard deviations.",
                      {0, sample::gaussian_max_radius},
                      3};
constexpr Real amount{1, "amount", "Amount", "", "How much of the detail is added.", {0, 10}, 1};
constexpr Real threshold{
    2, "threshold", "Threshold", "", "Differences up to it are left alone.", {0, 1}, 0};
constexpr auto parameters = parameter_table(radius, amount, threshold);
constexpr ctxb_port inputs[] = {port("in", "Input", rgba_float_or_half)};
constexpr ctxb_port outputs[] = {port("out", "Output", rgba_float_or_half)};
constexpr const char* features[] = {"sharpen", "unsharp-mask", nullptr};

class Unsharp final : public Plugin, public Regional {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("org.ctxbroker.sample.unsharp", "Unsharp mask", "1.0.0")
          .vendor("ctxbroker")
          .description("Sharpens by adding what a gaussian blur would take away.")
          .features(features)
          .inputs(inputs)
          .outputs(outputs)
          .parameters(parameters)
          .modules(unsharp_kernels::modules)
          .flags(CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    columns_ = activation.kernel("unsharp_columns");
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
               gaussian_.reach(), static_cast<float>(job[amount]),
               static_cast<float>(job[threshold]));
    return Outcome::done;
  }

 private:
  Kernel columns_;
  sample::GaussianStage gaussian_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Unsharp)
