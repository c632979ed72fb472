// SPDX-License-Identifier: Apache-2.0
// Vignette: fades the image to a colour, with the distance from a point. Alpha stays.
#include <ctxbroker/plugin.hpp>

#include "sizes.hpp"
#include "vignette_kernels.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Point centre = in_group(
    "Place",
    Point{0, "centre", "Centre", "", "What stays as it is; 0 0 is top left.", {0, 1}, {0.5, 0.5}});
constexpr Real radius =
    in_group("Place", skewed(2, Real{1,
                                     "radius",
                                     "Radius",
                                     "",
                                     "How far the middle reaches; 1 is half of the diagonal.",
                                     {0, 2},
                                     0.5}));
constexpr Real softness =
    in_group("Place", advanced(Real{2,
                                    "softness",
                                    "Softness",
                                    "",
                                    "How far the change reaches, on the same scale.",
                                    {0.001, 2},
                                    0.5}));
constexpr Colour colour =
    in_group("Look", Colour{3,
                            "colour",
                            "Colour",
                            "What the corners become; alpha is how much of it.",
                            {0, 1},
                            {0, 0, 0, 1}});
constexpr auto parameters = parameter_table(centre, radius, softness, colour);
constexpr const char* features[] = {"vignette", "colour", nullptr};

class Vignette final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("org.ctxbroker.sample.vignette", "Vignette", "1.0.0")
          .vendor("ctxbroker")
          .description("Fades an image to a colour, away from a point.")
          .features(features)
          .parameters(parameters)
          .modules(vignette_kernels::modules)
          .in_place()
          .flags(CTXB_PLUGIN_UNLOADABLE);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_image(activation);
    kernel_ = activation.kernel("vignette");
  }

  Outcome process(const Job& job) override {
    const ImageView in = job.input_image();
    const ImageView out = job.output_image();
    const PointValue middle = job[centre];
    const ColourValue to = job[colour];
    const auto number = [](double value) { return static_cast<float>(value); };
    job.launch(kernel_, over(out.width, out.height), in, out, number(middle.x), number(middle.y),
               number(job[radius]), number(job[softness]), number(to.red), number(to.green),
               number(to.blue), number(to.alpha));
    return Outcome::done;
  }

 private:
  Kernel kernel_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Vignette)
