// SPDX-License-Identifier: Apache-2.0
// Histogram equalisation on the runtime API: CUB counts and adds up, Thrust transforms; cudart is
// linked statically.
#include <cmath>

#include "equaliser.hpp"
#include "sizes.hpp"

namespace {

using namespace ctxbroker::sdk;

constexpr Real amount{
    0, "amount", "Amount", "", "0 leaves the image as it is, 1 equalises it.", {0, 1}, 0.5};
constexpr Integer levels = fixed(
    Integer{1, "levels", "Levels", "", "Steps of brightness that are counted.", {2, 65536}, 1024});
constexpr Real limit{
    2, "limit", "Limit", "EV", "A pixel gets no more than this brighter or darker.", {0, 16}, 3};
constexpr auto parameters = parameter_table(amount, levels, limit);
constexpr const char* features[] = {"contrast", "histogram", "equalisation", nullptr};

class HistogramEqualisation final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("org.ctxbroker.sample.histogram_equalisation", "Histogram equalisation",
                        "1.0.0")
          .vendor("ctxbroker")
          .description("Spreads the tones of an image evenly, on CUB and Thrust.")
          .features(features)
          .parameters(parameters)
          .cuda_use(CTXB_CUDA_RUNTIME)
          .in_place()
          .flags(CTXB_PLUGIN_NEEDS_NVIDIA_DRIVER);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_image(activation);
    try {
      equaliser_.allocate(std::uint64_t{activation.max_width()} * activation.max_height(),
                          static_cast<std::uint32_t>(activation[levels]));
    } catch (...) {
      equaliser_.reset();
      throw;
    }
  }

  Outcome process(const Job& job) override {
    equaliser_.run(job.input_image(), job.output_image(),
                   {static_cast<float>(job[amount]), static_cast<float>(std::exp2(job[limit]))},
                   static_cast<cudaStream_t>(job.raw_stream()));
    return Outcome::done;
  }

  void deactivate() override { equaliser_.reset(); }

  void context_lost(const Loss&) override { equaliser_.forget(); }

 private:
  ctxbroker::sample::Equaliser equaliser_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(HistogramEqualisation)
