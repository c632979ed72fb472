// SPDX-License-Identifier: Apache-2.0
// The plug-in of bench_launch: its process launches one kernel in the way that is asked for, and
// times it there.
#include <chrono>
#include <cstdlib>
#include <ctxbroker/plugin.hpp>

#include "control.hpp"
#include "launching_kernels.hpp"

namespace {

using namespace ctxbroker::sdk;
using ctxbroker::bench::LaunchControl;
using ctxbroker::bench::Way;

LaunchControl& control_from_environment() {
  const char* text = std::getenv(ctxbroker::bench::launch_control_variable);
  if (text == nullptr) throw Failure(CTXB_ERROR_UNSUPPORTED, "only bench_launch can use this");
  return *reinterpret_cast<LaunchControl*>(
      static_cast<std::uintptr_t>(std::strtoull(text, nullptr, 10)));
}

class Launching final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::audio("org.ctxbroker.bench.launching", "Launching", "1.0.0")
          .modules(launching_kernels::modules);

  explicit Launching(Host host) : Plugin(host), control_(control_from_environment()) {}

  void activate(const Activation& activation) override {
    kernel_ = activation.kernel("five");
    memory_ = activation.buffer<float>(64);
    const ctxb_host* raw = host().raw();
    gpu_ = static_cast<const ctxb_gpu_extension*>(raw->get_extension(raw, CTXB_EXT_GPU));
    launches_ = static_cast<const ctxb_launch_extension*>(raw->get_extension(raw, CTXB_EXT_LAUNCH));
    function_ = control_.load(launching_kernels::five.data);
  }

  Outcome process(const Job& job) override {
    values_ = {memory_.address(), memory_.address(), 0, 1, 0};
    switch (control_.way) {
      case Way::raw:
        measure([&] {
          return control_.raw_launch(function_, job.raw_stream(), const_cast<void**>(arguments_));
        });
        break;
      case Way::runtime:
        measure([&] {
          auto* memory = reinterpret_cast<float*>(memory_.address());
          return control_.runtime_launch(job.raw_stream(), memory, memory, 0, 1, 0);
        });
        break;
      case Way::gpu:
        measure([&] {
          const ctxb_launch launch = launch_of(job);
          return gpu_->launch(host().raw(), &launch);
        });
        break;
      case Way::extension:
        measure([&] {
          const ctxb_launch launch = launch_of(job);
          return launches_->launch(host().raw(), &launch, nullptr);
        });
        break;
      case Way::packed:
        measure([&] {
          job.launch_packed(kernel_, shape, pack(memory_, memory_, 0U, 1.0F, 0.0F));
          return 0;
        });
        break;
      case Way::typed:
        measure([&] {
          job.launch(kernel_, shape, memory_, memory_, 0U, 1.0F, 0.0F);
          return 0;
        });
        break;
    }
    return Outcome::bypass;
  }

 private:
  static constexpr LaunchShape shape{{1, 1, 1}, {32, 1, 1}};

  struct Values {
    std::uint64_t output, input;
    unsigned count;
    float factor, offset;
  };

  ctxb_launch launch_of(const Job& job) const {
    ctxb_launch launch{};
    launch.size = sizeof(launch);
    launch.argument_count = 5;
    launch.kernel = kernel_.handle;
    launch.stream = job.raw_stream();
    launch.grid[0] = launch.grid[1] = launch.grid[2] = 1;
    launch.block[0] = 32;
    launch.block[1] = launch.block[2] = 1;
    launch.arguments = arguments_;
    launch.argument_sizes = sizes;
    return launch;
  }

  template <class Once>
  void measure(Once&& once) {
    using Clock = std::chrono::steady_clock;
    const std::uint64_t allocations = control_.allocations_so_far();
    const auto start = Clock::now();
    for (unsigned i = 0; i < control_.count; ++i) {
      if (once() != 0) control_.failure = "a launch was refused";
    }
    const auto took = std::chrono::duration<double, std::nano>(Clock::now() - start);
    control_.nanoseconds = took.count() / control_.count;
    control_.allocations = control_.allocations_so_far() - allocations;
  }

  static constexpr std::uint32_t sizes[] = {8, 8, 4, 4, 4};

  LaunchControl& control_;
  Kernel kernel_;
  DeviceBuffer<float> memory_;
  const ctxb_gpu_extension* gpu_ = nullptr;
  const ctxb_launch_extension* launches_ = nullptr;
  void* function_ = nullptr;
  Values values_{};
  const void* arguments_[5] = {&values_.output, &values_.input, &values_.count, &values_.factor,
                               &values_.offset};
};

}  // namespace

CTXB_EXPORT_PLUGINS(Launching)
