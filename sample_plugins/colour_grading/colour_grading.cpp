// SPDX-License-Identifier: Apache-2.0
// Colour grading on the runtime API: the linear part is one product of matrices by cuBLAS, the
// tones a kernel; cudart is the shared library, which other plug-ins may use too.
#include <cublas_v2.h>

#include <algorithm>
#include <string>

#include "grade.hpp"
#include "runtime.hpp"
#include "sizes.hpp"
#include "tone.hpp"

namespace {

using namespace ctxbroker::sdk;
using namespace ctxbroker::sample;

constexpr Real lift{0, "lift", "Lift", "", "Added to black, nothing to white.", {-0.5, 0.5}, 0};
constexpr Real gamma_value{1, "gamma", "Gamma", "", "Above 1 lifts the middle.", {0.1, 10}, 1};
constexpr Colour gain{
    2, "gain", "Gain", "Factors for the colours; its alpha has no effect.", {0, 16}, {1, 1, 1, 1}};
constexpr Real saturation{
    3, "saturation", "Saturation", "", "0 is grey, 1 leaves colours as they are.", {0, 4}, 1};
constexpr Real hue{4, "hue", "Hue", "deg", "Turns colours about grey.", {-180, 180}, 0};
constexpr auto parameters = parameter_table(lift, gamma_value, gain, saturation, hue);
constexpr const char* features[] = {"colour", "grading", "lift-gamma-gain", nullptr};

constexpr int most_batches = 65535;          // rows in one call of cuBLAS
constexpr std::size_t workspace = 4U << 20;  // bytes; cuBLAS would allocate its own in process

void check_blas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) {
    return;
  }
  throw Failure(
      status == CUBLAS_STATUS_ALLOC_FAILED ? CTXB_ERROR_OUT_OF_DEVICE_MEMORY : CTXB_ERROR_DRIVER,
      std::string(what) + ": " + cublasGetStatusString(status));
}

class ColourGrading final : public Plugin {
 public:
  static constexpr Descriptor descriptor =
      Descriptor::image("org.ctxbroker.sample.colour_grading", "Colour grading", "1.0.0")
          .vendor("ctxbroker")
          .description("Lift, gamma, gain, saturation and hue, on cuBLAS.")
          .features(features)
          .parameters(parameters)
          .cuda_use(CTXB_CUDA_RUNTIME)
          .flags(CTXB_PLUGIN_NEEDS_NVIDIA_DRIVER);

  using Plugin::Plugin;

  void activate(const Activation& activation) override {
    sample::check_image(activation);
    try {
      prepare(activation);
    } catch (...) {
      deactivate();
      throw;
    }
  }

  Outcome process(const Job& job) override {
    auto* const stream = static_cast<cudaStream_t>(job.raw_stream());
    const ImageView out = job.output_image();
    const ColourValue factors = job[gain];
    store(grade({factors.red, factors.green, factors.blue}, job[saturation], job[hue]),
          matrix_.data(), stream);
    use(stream);
    multiply(job.input_image(), out);
    tone(out, static_cast<float>(job[lift]), static_cast<float>(job[gamma_value]), stream);
    return Outcome::done;
  }

  void deactivate() override {
    if (blas_ != nullptr) {
      static_cast<void>(cublasDestroy(blas_));
      blas_ = nullptr;
    }
    matrix_.reset();
    workspace_.reset();
  }

  void context_lost(const Loss&) override {
    blas_ = nullptr;
    matrix_.forget();
    workspace_.forget();
  }

 private:
  void prepare(const Activation& activation) {
    check_blas(cublasCreate(&blas_), "cublasCreate");
    // Products as exact as floats are, the same ones on every GPU.
    check_blas(cublasSetMathMode(blas_, CUBLAS_PEDANTIC_MATH), "cublasSetMathMode");
    matrix_.allocate(16);
    workspace_.allocate(workspace);
    warm_up(static_cast<cudaStream_t>(activation.raw_stream()), activation.max_width());
  }

  // Once for nothing: what cuBLAS loads at the first use is then loaded.
  void warm_up(cudaStream_t stream, std::uint32_t width) {
    RuntimeBuffer<float> in, out;
    const std::size_t values = std::size_t{4} * width;
    in.allocate(values);
    out.allocate(values);
    check(cudaMemsetAsync(in.data(), 0, in.bytes(), stream), "cudaMemsetAsync");
    store({}, matrix_.data(), stream);
    use(stream);
    multiply({in.data(), in.bytes(), width, 1}, {out.data(), out.bytes(), width, 1});
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    in.reset();
    out.reset();
  }

  // Forgets the workspace, so both are said for each job.
  void use(cudaStream_t stream) {
    check_blas(cublasSetStream(blas_, stream), "cublasSetStream");
    check_blas(cublasSetWorkspace(blas_, workspace_.data(), workspace_.bytes()),
               "cublasSetWorkspace");
  }

  // out = matrix * in. A row of pixels is a matrix of 4 rows; the rows of the image are a batch.
  void multiply(const ImageView& in, const ImageView& out) {
    const float one = 1, zero = 0;
    const auto floats = [](std::uint64_t bytes) { return static_cast<long long>(bytes / 4); };
    const int height = static_cast<int>(out.height);
    for (int first = 0; first < height; first += most_batches) {
      check_blas(cublasSgemmStridedBatched(
                     blas_, CUBLAS_OP_N, CUBLAS_OP_N, 4, static_cast<int>(out.width), 4, &one,
                     matrix_.data(), 4, 0, in.data + first * floats(in.pitch), 4, floats(in.pitch),
                     &zero, out.data + first * floats(out.pitch), 4, floats(out.pitch),
                     std::min(height - first, most_batches)),
                 "cublasSgemmStridedBatched");
    }
  }

  cublasHandle_t blas_ = nullptr;
  RuntimeBuffer<float> matrix_;
  RuntimeBuffer<char> workspace_;
};

}  // namespace

CTXB_EXPORT_PLUGINS(ColourGrading)
