// SPDX-License-Identifier: Apache-2.0
// Two images become one: over, add or multiply, where a mask allows it.
#include <ctxbroker/plugin.hpp>

#include "merge_kernels.hpp"
#include "operation.hpp"
#include "sizes.hpp"

namespace {

using namespace ctxbroker::sdk;
using sample::Operation;

constexpr const char* operations[] = {"over", "add", "multiply", nullptr};
constexpr Choice operation{0, "operation", "Operation", "How the images are combined.", operations,
                           0};
constexpr Real amount{1, "amount", "Amount", "", "0 leaves the background alone.", {0, 1}, 1};
constexpr auto parameters = parameter_table(operation, amount);
constexpr const char* features[] = {"merge", "composite", nullptr};

enum Input : std::uint32_t { front, back, mask };
constexpr ctxb_port inputs[] = {
    port("a", "Front", rgba_float_or_half), port("b", "Back", rgba_float_or_half),
    port("mask", "Mask", {CTXB_CHANNELS(1), CTXB_SAMPLE_FLOAT | CTXB_SAMPLE_HALF},
         CTXB_PORT_OPTIONAL)};
constexpr ctxb_port outputs[] = {port("out", "Output", rgba_float_or_half)};

class Merge final : public Plugin, public Regional {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("org.ctxbroker.sample.merge", "Merge", "1.0.0")
          .vendor("ctxbroker")
          .description("Puts one image over another one, adds them or multiplies them.")
          .features(features)
          .inputs(inputs)
          .outputs(outputs)
          .parameters(parameters)
          .modules(merge_kernels::modules)
          .flags(CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_image(activation);
    kernel_ = activation.kernel("merge");
  }

  // Both pictures. Where one of them has no pixel, it is transparent.
  Rectangle extent(const RegionQuestion& question, std::uint32_t, const Rectangle&) const override {
    return around(question.extent(front), question.extent(back));
  }
  Rectangle region(const RegionQuestion& question, std::uint32_t, const Rectangle& wanted,
                   std::uint32_t input) const override {
    return within(wanted, question.extent(input));
  }

  Outcome process(const Job& job) override {
    const PixelView out = job.output_pixels();
    const PixelView weights = job.has_input(mask) ? job.input_pixels(mask) : PixelView{};
    job.launch(kernel_, over(out.width, out.height), job.input_pixels(front),
               job.input_pixels(back), weights, out, static_cast<Operation>(job[operation]),
               static_cast<float>(job[amount]));
    return Outcome::done;
  }

 private:
  Kernel kernel_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Merge)
