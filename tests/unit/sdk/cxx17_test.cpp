// SPDX-License-Identifier: Apache-2.0
// The SDK's headers are promised to compile as C++17; this file is compiled as such.
#include <ctxbroker/plugin.hpp>

static_assert(__cplusplus < 202002L, "compile this file as C++17");

namespace {

using namespace ctxbroker::sdk;

class Small final : public Plugin {
 public:
  static constexpr Descriptor descriptor = Descriptor::audio("org.test.small", "Small", "1.0.0");
  using Plugin::Plugin;
  void activate(const Activation& activation) override { data_ = activation.buffer<float>(1); }
  Outcome process(const Job& job) override {
    job.clear(data_);
    return Outcome::done;
  }

 private:
  DeviceBuffer<float> data_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(Small)
