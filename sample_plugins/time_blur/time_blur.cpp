// SPDX-License-Identifier: Apache-2.0
// Blurs along time: the weighted mean of a frame and of frames before and after it.
#include <cstdlib>
#include <ctxbroker/plugin.hpp>

#include "frames.hpp"
#include "sizes.hpp"
#include "time_blur_kernels.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Integer before = fixed(Integer{0,
                                         "before",
                                         "Before",
                                         "frames",
                                         "How many frames before this one count.",
                                         {0, sample::most_frames},
                                         1});
constexpr Integer after = fixed(Integer{1,
                                        "after",
                                        "After",
                                        "frames",
                                        "How many frames after this one count.",
                                        {0, sample::most_frames},
                                        1});
constexpr const char* shapes[] = {"box", "triangle", nullptr};
constexpr Choice shape{2,      "shape", "Shape", "Whether far frames count as much as near ones.",
                       shapes, 0};
constexpr auto parameters = parameter_table(before, after, shape);
constexpr ctxb_port inputs[] = {port("in", "Input", any_image)};
constexpr ctxb_port outputs[] = {in_place_port("out", "Output", any_image)};
constexpr const char* features[] = {"blur", "time", "motion", nullptr};

class TimeBlur final : public Plugin, public Temporal {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("org.ctxbroker.sample.time_blur", "Time blur", "1.0.0")
          .vendor("ctxbroker")
          .description("The mean of a frame and its neighbours in time.")
          .features(features)
          .inputs(inputs)
          .outputs(outputs)
          .parameters(parameters)
          .modules(time_blur_kernels::modules)
          .flags(CTXB_PLUGIN_UNLOADABLE | CTXB_PLUGIN_PER_PIXEL);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_image(activation);
    kernel_ = activation.kernel("time_blur");
    frames_ = {-static_cast<std::int32_t>(activation[before]),
               static_cast<std::int32_t>(activation[after])};
  }

  Frames frames(std::uint32_t) const override { return frames_; }

  Outcome process(const Job& job) override {
    sample::Frames frames{};
    double sum = 0;
    for (std::int32_t at = frames_.first; at <= frames_.last; ++at) sum += weight(at, job);
    for (std::int32_t at = frames_.first; at <= frames_.last; ++at) {
      frames.frame[frames.count++] = {job.input_pixels(0, at),
                                      static_cast<float>(weight(at, job) / sum)};
    }
    const PixelView out = job.output_pixels();
    job.launch(kernel_, over(out.width, out.height), frames, job.input_pixels(), out);
    return Outcome::done;
  }

 private:
  // A triangle is 1 at the frame itself, and would be 0 just beyond the last frame that counts.
  double weight(std::int32_t at, const Job& job) const {
    const double width = (at < 0 ? -frames_.first : frames_.last) + 1;
    return job[shape] == 0 ? 1 : 1 - std::abs(at) / width;
  }

  Kernel kernel_;
  Frames frames_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(TimeBlur)
