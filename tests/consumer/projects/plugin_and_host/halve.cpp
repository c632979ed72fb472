// SPDX-License-Identifier: Apache-2.0
// The smallest plug-in: every sample is halved.
#include <ctxbroker/plugin.hpp>

#include "halve_kernels.hpp"

namespace {

using namespace ctxbroker::sdk;

class Halve final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.example.halve", "Halve", "1.0.0").modules(halve_kernels::modules);

  using Plugin::Plugin;

  void activate(const Activation& activation) override { kernel_ = activation.kernel("halve"); }

  Outcome process(const Job& job) override {
    const AudioView out = job.output_audio();
    job.launch(kernel_, over(out.frames, out.channels), job.input_audio(), out);
    return Outcome::done;
  }

 private:
  Kernel kernel_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Halve)
